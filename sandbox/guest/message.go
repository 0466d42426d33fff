package guest

import (
	"fmt"
	"syscall"
	"time"
)

// Version is the version of the protocol that this package speaks. A guest
// outlives the shelld that started it, so the two ends may differ; [NewClient]
// refuses a guest with another one.
const Version = 1

// maxIDLen caps the id of a run. Unit: bytes.
const maxIDLen = 64

// kind says what the payload of a frame is.
type kind byte

// From shelld to the guest. The comment names the payload and descriptors.
const (
	kindSetup  kind = 1 // setupMessage; cgroup v1: the guest's own tasks files
	kindStart  kind = 2 // startMessage; v1: the run's tasks files, v2: its directory
	kindKill   kind = 3 // killMessage
	kindForget kind = 4 // forgetMessage
	kindPing   kind = 5 // pingMessage
	kindAttach kind = 6 // attachMessage
	kindList   kind = 7 // listMessage
)

// From the guest to shelld.
const (
	kindHello     kind = 65 // helloMessage
	kindReady     kind = 66 // readyMessage
	kindStarted   kind = 67 // startedMessage; stdout, stderr, [stdin]
	kindFailed    kind = 68 // failedMessage
	kindExited    kind = 69 // exitedMessage
	kindPong      kind = 70 // pingMessage
	kindKilled    kind = 71 // killedMessage
	kindAttached  kind = 72 // startedMessage; stdout, stderr
	kindProcesses kind = 73 // processesMessage
)

func (k kind) String() string {
	switch k {
	case kindSetup:
		return "setup"
	case kindStart:
		return "start"
	case kindKill:
		return "kill"
	case kindForget:
		return "forget"
	case kindPing:
		return "ping"
	case kindAttach:
		return "attach"
	case kindList:
		return "list"
	case kindHello:
		return "hello"
	case kindReady:
		return "ready"
	case kindStarted:
		return "started"
	case kindFailed:
		return "failed"
	case kindExited:
		return "exited"
	case kindPong:
		return "pong"
	case kindKilled:
		return "killed"
	case kindAttached:
		return "attached"
	case kindProcesses:
		return "processes"
	default:
		return fmt.Sprintf("kind %d", byte(k))
	}
}

// Mode says how the guest puts a command where its limits are.
type Mode string

const (
	// CgroupV2 clones each command into the cgroup directory that came with
	// its start.
	CgroupV2 Mode = "v2"
	// CgroupV1 moves a thread through the tasks files that came with a start,
	// forks there, and moves it back to those of [Setup.Home] before it
	// answers. Until then the run's cgroup lists the guest, too.
	CgroupV1 Mode = "v1"
	// Anchored is for machines that give us no cgroup: each command runs
	// under a small process that all it leaves behind stays below.
	Anchored Mode = "anchored"
)

// Stage is the step at which a command could not be started.
type Stage string

const (
	// StageDir is entering the working directory.
	StageDir Stage = "dir"
	// StageExec is executing the program.
	StageExec Stage = "exec"
	// StageCgroup is entering the run's cgroup.
	StageCgroup Stage = "cgroup"
	// StageFork is making the process: no memory or too many processes.
	StageFork Stage = "fork"
	// StagePipe is making the pipes: too many open files.
	StagePipe Stage = "pipe"
	// StageRequest is the request itself: a repeated or unknown id, or
	// something that the guest's mode does not offer.
	StageRequest Stage = "request"
)

type setupMessage struct {
	Mode Mode `json:"mode"`
}

type startMessage struct {
	ID    string   `json:"id"`
	Argv  []string `json:"argv"`
	Env   []string `json:"env"`
	Dir   string   `json:"dir"`
	Stdin bool     `json:"stdin,omitempty"` // false: /dev/null
	UID   uint32   `json:"uid"`
	GID   uint32   `json:"gid"`
}

type killMessage struct {
	ID string `json:"id"`
}

type forgetMessage struct {
	ID string `json:"id"`
}

type attachMessage struct {
	ID string `json:"id"`
}

type listMessage struct {
	ID string `json:"id"`
}

// processesMessage lists the processes of an anchored run that live.
type processesMessage struct {
	ID   string `json:"id"`
	PIDs []int  `json:"pids"`
}

type pingMessage struct {
	Seq uint64 `json:"seq"`
}

// helloMessage is the first message of a connection. A long list takes more
// than one; all but the last have More set.
type helloMessage struct {
	Version int              `json:"version"`
	Runs    []startedMessage `json:"runs"`
	More    bool             `json:"more,omitempty"`
}

type readyMessage struct{}

// startedMessage has Exit when the command ended before this was sent; no
// exitedMessage follows then.
type startedMessage struct {
	ID   string       `json:"id"`
	PID  int          `json:"pid"`
	Exit *exitMessage `json:"exit,omitempty"`
}

type exitMessage struct {
	Status uint32 `json:"status"` // as wait4(2) gives it
	UTime  int64  `json:"utime"`  // µs
	STime  int64  `json:"stime"`  // µs
}

type exitedMessage struct {
	ID string `json:"id"`
	exitMessage
}

type killedMessage struct {
	ID string `json:"id"`
	// Left is how many processes could not be killed in time.
	Left int `json:"left,omitempty"`
}

// What a failedMessage answers.
const (
	opSetup  = "setup"
	opStart  = "start"
	opKill   = "kill"
	opAttach = "attach"
	opList   = "list"
)

// failedMessage answers what Op names.
type failedMessage struct {
	Op    string `json:"op"`
	ID    string `json:"id,omitempty"`
	Stage Stage  `json:"stage"`
	Errno int    `json:"errno"`
	Text  string `json:"text,omitempty"`
}

// Exit is how a command ended.
type Exit struct {
	// Status is the wait status as the kernel gave it.
	Status syscall.WaitStatus
	// UserTime and SystemTime are the processor time of the command and of
	// those of its children that it waited for.
	UserTime   time.Duration
	SystemTime time.Duration
}

func (m exitMessage) exit() Exit {
	return Exit{
		Status:     syscall.WaitStatus(m.Status),
		UserTime:   time.Duration(m.UTime) * time.Microsecond,
		SystemTime: time.Duration(m.STime) * time.Microsecond,
	}
}
