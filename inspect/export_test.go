package inspect

import "testing"

// Read looks at a session's timeline once, like a page.
func (h *Handler) Read(t *testing.T, id string) {
	t.Helper()
	f, release := h.feed(id)
	defer release()
	for {
		v, err := f.look("", 0, maxRows)
		if err != nil {
			t.Fatal(err)
		}
		if v.total > 0 {
			return
		}
		<-v.next
	}
}

// Feeds returns how many sessions are followed.
func (h *Handler) Feeds() int {
	h.feeds.mu.Lock()
	defer h.feeds.mu.Unlock()
	return len(h.feeds.byID)
}
