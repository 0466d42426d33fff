/*
 * Lets User-Mode Linux 6.1 run on processors whose register state is larger
 * than the buffers it keeps for it, such as those with AMX (11 KB). Linux
 * refuses to set less than the whole state and answers EFAULT, and the machine
 * dies with "ptrace set fp regs failed". So this library, which LD_PRELOAD puts
 * in between, completes what is to be set by what the process has there now.
 * Nothing uses that part: no program in the machine can ask its host for AMX.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Processors that will be built have room, too. Unit: bytes. */
#define ROOM 65536

long ptrace(enum __ptrace_request request, ...)
{
	static char whole[ROOM] __attribute__((aligned(64)));
	struct iovec *part, state = { whole, sizeof whole };
	va_list args;
	pid_t pid;
	void *addr, *data, *peeked;
	long result;

	va_start(args, request);
	pid = va_arg(args, pid_t);
	addr = va_arg(args, void *);
	data = va_arg(args, void *);
	va_end(args);

	part = data;
	if (request == PTRACE_SETREGSET && addr == (void *)NT_X86_XSTATE &&
	    syscall(SYS_ptrace, PTRACE_GETREGSET, pid, addr, &state) == 0 &&
	    part->iov_len < state.iov_len) {
		memcpy(whole, part->iov_base, part->iov_len);
		data = &state;
	}
	/* Only the C library's function returns what was peeked. */
	if (request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER) {
		result = syscall(SYS_ptrace, request, pid, addr, &peeked);
		return result < 0 ? result : (long)peeked;
	}
	return syscall(SYS_ptrace, request, pid, addr, data);
}
