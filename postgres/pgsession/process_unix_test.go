//go:build unix

package pgsession_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/postgres/pgsession"
)

// TestPaused stops a process that has a session open. Another one takes over when the claim has
// expired, and not before; the next save of the first fails.
func TestPaused(t *testing.T) {
	const claim = 2 * time.Second // much more than a busy machine keeps a process waiting
	p := newPlace(t)
	store := open(t, p, pgsession.Options{Claim: claim})
	holder := startProcess(t, "hold", p, claim)
	if got := holder.line(); got != "1 false <nil>" {
		t.Fatalf("the holder reports %q", got)
	}
	for begin := time.Now(); time.Since(begin) < claim+claim/2; time.Sleep(claim / 20) {
		if _, err := store.Open(t.Context(), "x"); !errors.Is(err, session.ErrConflict) {
			t.Fatalf("the claim of a live holder was taken: %v", err)
		}
	}
	if err := store.Delete(t.Context(), "x"); !errors.Is(err, session.ErrConflict) {
		t.Errorf("a session that is open was deleted: %v", err)
	}
	holder.step()
	if got := holder.line(); got != "2 false <nil>" {
		t.Fatalf("the holder reports %q", got)
	}
	stopped := time.Now()
	holder.signal(syscall.SIGSTOP)
	log, err := store.Open(t.Context(), "x")
	for ; errors.Is(err, session.ErrConflict); log, err = store.Open(t.Context(), "x") {
		if time.Since(stopped) > 30*time.Second {
			t.Fatal("the claim of a holder that was stopped does not expire")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(stopped); took < claim/2 || took > claim+5*time.Second { // a claim is renewed at every third of it; the machine may be busy
		t.Errorf("taken over after %v, with claims of %v", took, claim)
	} else {
		t.Logf("taken over after %v, with claims of %v", took, claim)
	}
	if recs, err := log.Load(t.Context()); err != nil || len(recs) != 2 {
		t.Errorf("the follower loads %v, %v", recs, err)
	}
	holder.signal(syscall.SIGCONT)
	holder.step()
	if got := holder.line(); !strings.HasPrefix(got, "3 true ") {
		t.Errorf("the first holder reports %q, want an ErrConflict", got)
	}
	appendTo(t, log, record(3)) // the first holder has stored nothing
}

func (c *process) signal(sig syscall.Signal) {
	c.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		c.Fatal(err)
	}
}
