package output

// Settled reports whether every byte that was taken from the pipe counts as
// produced. It is false for the moment between the two. With an empty pipe,
// looked at before, it means that all that was written is stored.
func (s *Spool) Settled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight == 0
}
