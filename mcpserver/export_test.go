package mcpserver

// Held returns the ids of the sessions over HTTP that this server has.
func (s *Server) Held() (ids []string) {
	for _, c := range s.reg.httpSessions() {
		ids = append(ids, c.id)
	}
	return ids
}
