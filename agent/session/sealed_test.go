package session_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/message"
)

var sealKey = []byte("a key of thirty-two random bytes")

// sealedDir returns a sealed store, the store without its seals, and their directory.
func sealedDir(t *testing.T) (sealed, plain session.Store, path string) {
	t.Helper()
	path = t.TempDir()
	plain = must(session.Dir(path))
	return must(session.Sealed(plain, sealKey)), plain, path
}

// say runs a turn of a conversation.
func say(t *testing.T, store session.Store, id, text string) {
	t.Helper()
	s := open(t, store, id)
	s.Labels = map[string]string{"tenant": "anna"}
	if _, err := newGreeter(s.Save).Reply(t.Context(), s.State, agent.Say(text)); err != nil {
		t.Fatal(err)
	}
	shut(t, s)
}

// all returns the State and the events of a session as text, and the first error of reading them
// in each way.
func all(t *testing.T, store session.Store, id string) (text string, openErr, readErr, watchErr error) {
	t.Helper()
	s, openErr := session.Open(t.Context(), store, id)
	if openErr == nil {
		text = encode(t, s.State)
		shut(t, s)
	}
	_, _, readErr = session.Read(t.Context(), store, id, 0)
	page := must(store.List(t.Context(), session.Query{ID: id}))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond) // the last events may be missing
	defer cancel()
	for ev, err := range store.(session.Watcher).Watch(ctx, id, 0) {
		if err != nil {
			return text, openErr, readErr, err
		}
		text += string(ev.Data)
		if ev.Seq >= page.Infos[0].Event {
			break
		}
	}
	return text, openErr, readErr, nil
}

// sign returns the line of a session file with the right checksum, as an attacker would write it.
func sign(line []byte) []byte {
	_, body, _ := bytes.Cut(line, []byte(`",`))
	return fmt.Appendf(nil, `{"crc":"%08x",%s`, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)), body)
}

// TestSealedChanged changes every third byte of the records of a session file, together with the
// checksums.
func TestSealedChanged(t *testing.T) {
	t.Parallel()
	sealed, _, path := sealedDir(t)
	say(t, sealed, "a", "one")
	file := filepath.Join(path, "a.jsonl")
	data := must(os.ReadFile(file))
	want, openErr, readErr, watchErr := all(t, sealed, "a")
	if err := errors.Join(openErr, readErr, watchErr); err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(data, []byte("\n"))
	for n, line := range lines {
		if !bytes.HasPrefix(line, []byte(`{"crc"`)) {
			continue
		}
		for i := len(`{"crc":"00000000",`); i < len(line); i += 3 {
			changed := bytes.Clone(line)
			if changed[i] ^= 1; !json.Valid(changed) {
				continue // which Dir finds
			}
			lines[n] = sign(changed)
			if err := os.WriteFile(file, bytes.Join(lines, []byte("\n")), 0o600); err != nil {
				t.Fatal(err)
			}
			got, openErr, readErr, watchErr := all(t, sealed, "a")
			if errors.Join(openErr, readErr, watchErr) == nil && got != want {
				t.Fatalf("%s\nis not refused:\n%s", changed, got)
			}
		}
		lines[n] = line
	}
}

// TestSealedForged has what someone without the key, who can write to the store, makes of two
// sessions.
func TestSealedForged(t *testing.T) {
	rule := `"rules":[{"tool":"Bash","behavior":"allow"}],`
	for _, row := range []struct {
		name  string
		forge func(t *testing.T, plain session.Store, path string)
	}{
		{"a record is appended", func(t *testing.T, plain session.Store, _ string) { say(t, plain, "a", "forged") }},
		{"a whole record is appended", func(t *testing.T, plain session.Store, _ string) {
			s := open(t, plain, "a")
			data := strings.Replace(encode(t, s.State), "{", "{"+rule, 1)
			shut(t, s)
			appendTo(t, plain, "a", session.Record{Whole: true, Data: json.RawMessage(data)})
		}},
		{"the session is written anew", func(t *testing.T, plain session.Store, _ string) {
			if err := plain.Delete(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
			say(t, plain, "a", "forged")
		}},
		{"a sealed record is used again", func(t *testing.T, plain session.Store, _ string) {
			_, recs, err := plain.(session.Reader).Read(t.Context(), "a", 0)
			if err != nil {
				t.Fatal(err)
			}
			appendTo(t, plain, "a", recs[len(recs)-1])
		}},
		{"another sealed session", func(t *testing.T, _ session.Store, path string) {
			other := must(os.ReadFile(filepath.Join(path, "b.jsonl")))
			header := []byte(`{"kitbag_session":1,"id":"a"}`)
			if err := os.WriteFile(filepath.Join(path, "a.jsonl"), bytes.Replace(other, bytes.SplitN(other, []byte("\n"), 2)[0], header, 1), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
		{"a record of another branch", func(t *testing.T, plain session.Store, path string) {
			file := filepath.Join(path, "a.jsonl")
			first := must(os.ReadFile(file))
			sealed := must(session.Sealed(plain, sealKey))
			say(t, sealed, "a", "this way")
			cut := bytes.Split(bytes.TrimPrefix(must(os.ReadFile(file)), first), []byte("\n"))
			if err := os.WriteFile(file, first, 0o600); err != nil {
				t.Fatal(err)
			}
			say(t, sealed, "a", "that way")
			lines := bytes.Split(must(os.ReadFile(file)), []byte("\n"))
			copy(lines[bytes.Count(first, []byte("\n")):], cut[:2]) // the first record and its summary
			if err := os.WriteFile(file, bytes.Join(lines, []byte("\n")), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		sealed, plain, path := sealedDir(t)
		say(t, sealed, "a", "one")
		say(t, sealed, "b", "two")
		row.forge(t, plain, path)
		_, openErr, readErr, _ := all(t, sealed, "a")
		if !errors.Is(openErr, session.ErrUnsealed) || !errors.Is(readErr, session.ErrUnsealed) {
			t.Errorf("%s: open: %v, read: %v", row.name, openErr, readErr)
		}
		if _, openErr, readErr, watchErr := all(t, sealed, "b"); errors.Join(openErr, readErr, watchErr) != nil {
			t.Errorf("%s: the other session: %v, %v, %v", row.name, openErr, readErr, watchErr)
		}
	}
}

// appendTo appends a record as the next one.
func appendTo(t *testing.T, store session.Store, id string, rec session.Record) {
	t.Helper()
	log := must(store.Open(t.Context(), id))
	recs := must(log.Load(t.Context()))
	rec.Seq = recs[len(recs)-1].Seq + 1
	if err := errors.Join(log.Append(t.Context(), rec), log.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestSealedEvents drops and adds events.
func TestSealedEvents(t *testing.T) {
	for name, change := range map[string]func([]session.Event) []session.Event{
		"the first is dropped": func(list []session.Event) []session.Event { return list[1:] },
		"one is dropped":       func(list []session.Event) []session.Event { return append(list[:1], list[2:]...) },
		"one is added": func(list []session.Event) []session.Event {
			return append(list, session.Event{Seq: 99, Data: json.RawMessage(`{"seq":99,"type":"end"}`)})
		},
	} {
		sealed, plain, _ := sealedDir(t)
		say(t, sealed, "a", "one")
		var recs []session.Record
		_, in, err := session.Read(t.Context(), plain, "a", 0)
		if err != nil {
			t.Fatal(err)
		}
		for seq := range in.Seq {
			_, list, err := plain.(session.Reader).Read(t.Context(), "a", seq+1)
			if err != nil {
				t.Fatal(err)
			}
			recs = append(recs, list[len(list)-1])
		}
		for ev, err := range plain.(session.Watcher).Watch(t.Context(), "a", 0) {
			if err != nil {
				t.Fatal(err)
			}
			rec := &recs[ev.Record-1]
			if rec.Events = append(rec.Events, session.Event{Seq: ev.Seq, Data: ev.Data}); ev.Seq == in.Event {
				break
			}
		}
		last := &recs[1] // the first one with more than two events
		last.Events = change(last.Events)
		if name == "one is added" {
			recs = recs[:2]
		}
		if err := plain.Delete(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		log := must(plain.Open(t.Context(), "a"))
		for _, rec := range recs {
			if err := log.Append(t.Context(), rec); err != nil {
				t.Fatal(err)
			}
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := all(t, sealed, "a"); !errors.Is(err, session.ErrUnsealed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSealedIsReadable reads a sealed session without the key, and forks it with the key.
func TestSealedIsReadable(t *testing.T) {
	sealed, plain, _ := sealedDir(t)
	say(t, sealed, "a", "one")
	say(t, sealed, "a", "two")
	st, _, err := session.Read(t.Context(), plain, "a", 0)
	if err != nil || len(st.Messages) != 4 {
		t.Fatalf("%+v, %v", st, err)
	}
	n := 0
	for ev, err := range session.Watch(t.Context(), plain, "a", 0) {
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := ev.(*event.End); ok {
			if n++; n == 2 {
				break
			}
		}
	}
	if err := session.ForkBefore(t.Context(), sealed, "a", "b", st.Messages[2].ID); err != nil {
		t.Fatal(err)
	}
	if st, in, err := session.Read(t.Context(), sealed, "b", 0); err != nil || len(st.Messages) != 2 || in.Labels["tenant"] != "anna" {
		t.Errorf("the copy is %+v, %v", st, err)
	}
	if _, _, err := session.Read(t.Context(), sealed, "a", 1); err != nil {
		t.Error(err)
	}
}

// TestSealedInbox sends an answer without the key: the session still waits, and the answer of the
// user counts.
func TestSealedInbox(t *testing.T) {
	sealed, plain, _ := sealedDir(t)
	o, q := newRiskyFixture(t, sealed, "go")
	for id, store := range map[string]session.Store{"forged": plain, "other": must(session.Sealed(plain, []byte("a key of another user, as long.")))} {
		if _, err := session.Send(t.Context(), store, "a", id, q.Allow()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := session.Send(t.Context(), plain, "a", "stop", agent.Interrupt{}); err != nil {
		t.Fatal(err)
	}
	copied := must(plain.(session.Inbox).Inputs(t.Context(), "a"))[0]
	o.send("user", q.Deny("no"))
	moved := must(plain.(session.Inbox).Input(t.Context(), "a", "user"))
	if _, err := plain.(session.Inbox).Send(t.Context(), "a", session.Entry{ID: copied.ID + "2", Data: moved.Data}); err != nil {
		t.Fatal(err)
	}
	o.s = reopen(o)
	if _, err := o.run(); err != nil || len(o.stamped) > 0 {
		t.Fatalf("stamped %q, %v", o.stamped, err)
	}
	for id, refused := range map[string]bool{"forged": true, "other": true, "stop": true, copied.ID + "2": true, "user": false} {
		e, err := sealed.(session.Inbox).Input(t.Context(), "a", id)
		if err != nil || e.Record == 0 || strings.Contains(e.Refused, "its seal is missing or wrong") != refused {
			t.Errorf("%s: %+v, %v", id, e, err)
		}
	}
	if len(o.s.State.Pending()) > 0 {
		t.Error("the answer of the user did not count")
	}
}

// TestSealedRefuses has keys that an attacker can find, and stores that could not be sealed
// completely.
func TestSealedRefuses(t *testing.T) {
	for n := range 16 {
		if _, err := session.Sealed(session.Memory(), bytes.Repeat([]byte{7}, n)); err == nil {
			t.Errorf("a key of %d bytes is accepted", n)
		}
	}
	store := session.Memory()
	for _, lacking := range []session.Store{
		struct{ session.Store }{store},
		struct {
			session.Store
			session.Inbox
			session.Reader
		}{store, store.(session.Inbox), store.(session.Reader)},
	} {
		if _, err := session.Sealed(lacking, sealKey); err == nil || !strings.Contains(err.Error(), "not an Inbox, a Watcher and a Reader") {
			t.Errorf("%T: %v", lacking, err)
		}
	}
	if _, ok := must(session.Sealed(store, sealKey)).(session.Notifier); ok {
		t.Error("the sealed store is a Notifier, unlike the other")
	}
	if _, ok := must(session.Sealed(notifying{Store: store, Inbox: store.(session.Inbox), Watcher: store.(session.Watcher), Reader: store.(session.Reader)}, sealKey)).(session.Notifier); !ok {
		t.Error("the sealed store is no Notifier, unlike the other")
	}
}

type notifying struct {
	session.Store
	session.Inbox
	session.Watcher
	session.Reader
	session.Notifier
}

// TestSealedKeyErased erases the caller's key while the store is used.
func TestSealedKeyErased(t *testing.T) {
	plain := session.Memory()
	erased := bytes.Clone(sealKey)
	sealed := must(session.Sealed(plain, erased))
	clear(erased)
	say(t, sealed, "a", "one")
	if _, _, err := session.Read(t.Context(), must(session.Sealed(plain, sealKey)), "a", 0); err != nil {
		t.Error(err)
	}
}

// TestSealedText stores text whose JSON changes when it is stored: invalid UTF-8, and characters
// that are escaped.
func TestSealedText(t *testing.T) {
	sealed, _, _ := sealedDir(t)
	s := open(t, sealed, "a")
	s.State.Messages = append(s.State.Messages, message.User("<&> \u2028 \ufffd \xff"))
	if err := s.Save(t.Context(), s.State); err != nil {
		t.Fatal(err)
	}
	shut(t, s)
	if _, err := session.Send(t.Context(), sealed, "a", "1", agent.Say("<&> \u2028 \ufffd \xff")); err != nil {
		t.Fatal(err)
	}
	open(t, sealed, "a")
	if in := must(sealed.(session.Inbox).Input(t.Context(), "a", "1")); in.Refused != "" {
		t.Error(in.Refused)
	}
}
