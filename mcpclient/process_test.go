package mcpclient

import (
	"os"
	"strings"
	"sync"
	"testing"
)

// TestUnreadInput holds that messages to a server which reads nothing do not pile
// up until the time-out.
func TestUnreadInput(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &requestPipe{r: r, w: w, ends: map[string]int64{}, withdrawn: map[string]bool{}}
	defer p.drain()
	errs := make([]error, maxWaiting+1)
	message := make([]byte, 1<<20) // more than a pipe holds
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { _, errs[i] = p.Write(message) })
	}
	all.Wait()
	told := 0
	for _, err := range errs {
		if err == nil {
			t.Fatal("a message was written that nobody reads")
		}
		if strings.Contains(err.Error(), "messages wait") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("%d of %d errors say that too many messages wait, want one", told, len(errs))
	}
}
