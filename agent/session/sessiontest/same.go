package sessiontest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/kitbag-go/kitbag/agent/session"
)

// Same performs the same random operations on a store and on [session.Memory], and compares the results. The store
// must be a [session.Inbox], a [session.Watcher] and a [session.Reader], and keep all records.
func Same(t *testing.T, open Opener) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "sessiontest")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		p := &pair{T: t, want: session.Memory(), logs: map[string][2]session.Log{}}
		reopen := func() {
			p.closeGot()
			if p.got, err = open(dir); err != nil {
				t.Fatal(err)
			}
		}
		reopen()
		defer p.closeGot()
		t.Repeat(map[string]func(*rapid.T){
			"append": p.append,
			"close":  func(t *rapid.T) { p.close(drawID(t)) },
			"send":   p.send,
			"delete": p.delete,
			"list":   p.list,
			"read":   p.read,
			"watch":  p.watch,
			"inputs": p.inputs,
			"reopen": func(*rapid.T) { reopen() },
		})
	})
}

// A pair is a store and the Memory with which it is compared.
type pair struct {
	*rapid.T
	got, want session.Store
	logs      map[string][2]session.Log // the open logs of got and want, by session id
	lastEvent int64                     // the number of the last event in any session
}

func (p *pair) both() [2]session.Store { return [2]session.Store{p.got, p.want} }

func drawID(t *rapid.T) string { return rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id") }

func drawInput(t *rapid.T) string {
	return rapid.SampledFrom([]string{"1", "2", "3", "4", "5", "6"}).Draw(t, "input")
}

// same calls do with each store, and compares the results and the kinds of errors.
func (p *pair) same(what string, do func(i int, s session.Store) (any, error)) {
	p.Helper()
	var results [2]string
	for i, store := range p.both() {
		v, err := do(i, store)
		results[i] = fmt.Sprintf("%v; failed %v, conflict %v, missing %v, full %v", v, err != nil,
			errors.Is(err, session.ErrConflict), errors.Is(err, fs.ErrNotExist), errors.Is(err, session.ErrFull))
	}
	if results[0] != results[1] {
		p.Fatalf("%s\n%s\nin memory\n%s", what, results[0], results[1])
	}
}

// closeGot closes the store got and all sessions.
func (p *pair) closeGot() {
	for id := range p.logs {
		p.close(id)
	}
	if c, ok := p.got.(interface{ Close() error }); ok {
		if err := c.Close(); err != nil {
			p.Fatal(err)
		}
	}
	p.got = nil
}

func (p *pair) close(id string) {
	logs, ok := p.logs[id]
	if !ok {
		return
	}
	delete(p.logs, id)
	if err := errors.Join(logs[0].Close(), logs[1].Close()); err != nil {
		p.Fatal(err)
	}
}

// open returns the logs of a session in both stores, and opens the session if it is closed.
func (p *pair) open(t *rapid.T, id string) [2]session.Log {
	logs, ok := p.logs[id]
	if ok {
		return logs
	}
	for i, store := range p.both() {
		log, err := store.Open(context.Background(), id)
		if err != nil {
			t.Fatal(err)
		}
		logs[i] = log
	}
	p.logs[id] = logs
	return logs
}

func (p *pair) append(t *rapid.T) {
	id := drawID(t)
	logs := p.open(t, id)
	var seq int64
	if recs, err := logs[1].Load(context.Background()); err == nil && len(recs) > 0 {
		seq = recs[len(recs)-1].Seq
	}
	rec := record(int(seq)+1, seq == 0 || rapid.IntRange(0, 3).Draw(t, "whole") == 0, fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "data")))
	if rapid.IntRange(0, 9).Draw(t, "bad") == 0 { // mostly a conflict
		rec.Seq += int64(rapid.IntRange(-1, 1).Draw(t, "off"))
	}
	rec.Status = rapid.SampledFrom([]session.Status{"", session.StatusWorking, session.StatusWaiting, session.StatusEnded}).Draw(t, "status")
	if v := rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "label"); v != "" {
		rec.Labels = map[string]string{"l": v}
	}
	for range rapid.IntRange(0, 3).Draw(t, "events") {
		p.lastEvent += int64(rapid.IntRange(1, 3).Draw(t, "gap"))
		rec.Events = append(rec.Events, eventOf(p.lastEvent))
	}
	if rapid.Bool().Draw(t, "consumes") {
		rec.Consumed = []session.ConsumedInput{{ID: drawInput(t), Refused: rapid.SampledFrom([]string{"", "no"}).Draw(t, "refused")}}
	}
	p.same("append", func(i int, _ session.Store) (any, error) { return nil, logs[i].Append(context.Background(), rec) })
	p.same("load", func(i int, _ session.Store) (any, error) {
		recs, err := logs[i].Load(context.Background())
		return fmt.Sprint(len(recs), show(recs)), err
	})
}

func (p *pair) send(t *rapid.T) {
	id, in := drawID(t), entry(drawInput(t))
	p.same("send", func(_ int, s session.Store) (any, error) { return s.(session.Inbox).Send(context.Background(), id, in) })
}

// delete closes the session first: stores may treat an open session differently.
func (p *pair) delete(t *rapid.T) {
	id := drawID(t)
	p.close(id)
	p.same("delete", func(_ int, s session.Store) (any, error) { return nil, s.Delete(context.Background(), id) })
}

func (p *pair) list(t *rapid.T) {
	q := session.Query{Limit: rapid.IntRange(1, 4).Draw(t, "limit"), Inputs: rapid.Bool().Draw(t, "inputs")}
	if st := rapid.SampledFrom([]session.Status{"any", "", session.StatusWorking, session.StatusAbandoned, session.StatusEnded}).Draw(t, "status"); st != "any" {
		q.Status = []session.Status{st, session.StatusWaiting}
	}
	if v := rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "label"); v != "" {
		q.Labels = map[string]string{"l": v}
	}
	if rapid.Bool().Draw(t, "by id") {
		q.ID = drawID(t)
	}
	p.same("list", func(_ int, s session.Store) (any, error) {
		var lines []string
		for q := q; ; {
			page, err := s.List(context.Background(), q)
			for _, in := range page.Infos {
				lines = append(lines, showInfo(in))
			}
			if q.After = page.Next; err != nil || q.After == "" {
				return lines, err
			}
		}
	})
}

func showInfo(in session.Info) string {
	return fmt.Sprintln(in.ID, in.Seq, in.Event, in.Status, in.Labels, in.Inputs, in.Updated.IsZero())
}

func (p *pair) read(t *rapid.T) {
	id, seq := drawID(t), int64(rapid.IntRange(-1, 6).Draw(t, "seq"))
	p.same("read", func(_ int, s session.Store) (any, error) {
		in, recs, err := s.(session.Reader).Read(context.Background(), id, seq)
		if err != nil {
			return nil, err
		}
		last := ""
		if len(recs) > 0 {
			r := recs[len(recs)-1]
			last = fmt.Sprint(r.Status, r.Labels)
		}
		return showInfo(in) + show(recs) + last, nil
	})
}

func (p *pair) watch(t *rapid.T) {
	id, after := drawID(t), rapid.Int64Range(0, p.lastEvent).Draw(t, "after")
	p.same("watch", func(_ int, s session.Store) (any, error) {
		in, _, err := s.(session.Reader).Read(context.Background(), id, 0)
		if err != nil || in.Event <= after { // Watch would wait
			return nil, err
		}
		var seen []string
		for ev, err := range s.(session.Watcher).Watch(context.Background(), id, after) {
			if err != nil {
				return nil, err
			}
			if seen = append(seen, fmt.Sprint(ev.Seq, ev.Record, string(ev.Data))); ev.Seq >= in.Event {
				break
			}
		}
		return seen, nil
	})
}

func (p *pair) inputs(t *rapid.T) {
	id, input := drawID(t), drawInput(t)
	line := func(e session.Entry) string { return fmt.Sprintln(e.ID, string(e.Data), e.Record, e.Refused) }
	p.same("inputs", func(_ int, s session.Store) (any, error) {
		entries, err := s.(session.Inbox).Inputs(context.Background(), id)
		var lines []string
		for _, e := range entries {
			lines = append(lines, line(e))
		}
		return lines, err
	})
	p.same("input", func(_ int, s session.Store) (any, error) {
		e, err := s.(session.Inbox).Input(context.Background(), id, input)
		return line(e), err
	})
}
