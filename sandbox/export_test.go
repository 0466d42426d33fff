package sandbox

import "fmt"

// Memory describes what the Manager holds in memory besides containers; empty
// when nothing is under way.
func (m *Manager) Memory() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.calls)+len(m.byKey)+m.runs+len(m.operations) == 0 {
		return ""
	}
	return fmt.Sprintf("%d calls, %d keys, %d runs, %d operations", len(m.calls), len(m.byKey), m.runs, len(m.operations))
}
