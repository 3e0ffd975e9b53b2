package sessiontest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/agent/session"
)

// listIDs returns the ids of the sessions that q selects, in order.
func (s *suite) listIDs(q session.Query) []string {
	s.Helper()
	page, err := s.store.List(s.Context(), q)
	if err != nil {
		s.Fatal(err)
	}
	if page.Next != "" {
		s.Errorf("%+v: there is a next page", q)
	}
	var ids []string
	for _, in := range page.Infos {
		ids = append(ids, in.ID)
	}
	return ids
}

// info returns the Info of a session, from the list of all sessions.
func (s *suite) info(id string) session.Info {
	s.Helper()
	page, err := s.store.List(s.Context(), session.Query{})
	if err != nil {
		s.Fatal(err)
	}
	i := slices.IndexFunc(page.Infos, func(in session.Info) bool { return in.ID == id })
	if i < 0 {
		s.Fatalf("session %s is not listed", id)
	}
	return page.Infos[i]
}

func (s *suite) list() {
	if ids := s.listIDs(session.Query{}); len(ids) > 0 {
		s.Errorf("an empty store lists %v", ids)
	}
	for _, id := range []string{"c", "B", "a.b", "a"} {
		s.appendTo(id, record(1, true, `{}`))
		tick()
	}
	s.close(s.open("unused"))
	log := s.open("B")
	s.append(log, record(2, false, `2`))
	s.open("empty") // unlike the open session B, a session without a record is not listed
	if got, want := s.listIDs(session.Query{}), []string{"B", "a", "a.b", "c"}; !slices.Equal(got, want) {
		s.Errorf("the store lists %v, want %v", got, want)
	}
	s.close(log)
}

func (s *suite) appendLabelled(id string, seq int, status session.Status, labels map[string]string) {
	s.Helper()
	rec := record(seq, seq == 1, `{}`)
	rec.Status, rec.Labels = status, labels
	s.appendTo(id, rec)
	tick()
}

// tick waits until the next session has a later time: longer than the resolution of file system clocks.
func tick() { time.Sleep(5 * time.Millisecond) }

func (s *suite) queries() {
	anna, ben := map[string]string{"tenant": "anna", "kind": "chat"}, map[string]string{"tenant": "ben"}
	s.appendLabelled("old", 1, "", nil)
	s.appendLabelled("a1", 1, session.StatusEnded, anna)
	middle := time.Now()
	tick()
	s.appendLabelled("a2", 1, session.StatusWaiting, anna)
	s.appendLabelled("b1", 1, session.StatusWorking, ben)
	s.appendLabelled("b1", 2, session.StatusFailed, ben)
	s.appendLabelled("b2", 1, session.StatusFailed, map[string]string{"tenant": "ben "})
	s.appendLabelled("b2", 2, session.StatusFailed, nil)
	odd := map[string]string{"x": `'"\%_` + "\n\u2028é", "empty": ""}
	s.appendLabelled("o", 1, session.StatusEnded, odd)
	status := func(list ...session.Status) session.Query { return session.Query{Status: list} }
	label := func(k, v string) session.Query { return session.Query{Labels: map[string]string{k: v}} }
	for _, row := range []struct {
		query session.Query
		want  string
	}{
		{session.Query{}, "o b2 b1 a2 a1 old"},
		{status(session.StatusFailed), "b2 b1"},
		{status(session.StatusEnded, session.StatusWaiting), "o a2 a1"},
		{status(session.StatusWorking), ""},
		{status(""), "old"},
		{label("tenant", "anna"), "a2 a1"},
		{label("tenant", "ben"), "b1"},
		{label("tenant", "ann%"), ""},
		{label("tenant", ""), ""},
		{label("empty", ""), "o"},
		{label("x", odd["x"]), "o"},
		{session.Query{Labels: map[string]string{"tenant": "anna", "kind": "x"}}, ""},
		{session.Query{Labels: anna, Status: []session.Status{session.StatusEnded}}, "a1"},
		{session.Query{Since: middle}, "o b2 b1 a2"},
		{session.Query{Before: middle}, "a1 old"},
		{session.Query{Since: middle, Before: middle}, ""},
		{session.Query{Inputs: true}, ""},
		{session.Query{ID: "b1"}, "b1"},
		{session.Query{ID: "b"}, ""},
		{session.Query{ID: "../b1"}, ""},
		{session.Query{ID: "b1", Status: []session.Status{session.StatusEnded}}, ""},
	} {
		if got := strings.Join(s.listIDs(row.query), " "); got != row.want {
			s.Errorf("%+v selects %q, want %q", row.query, got, row.want)
		}
	}
	if in := s.info("o"); in.Seq != 1 || in.Event != 0 || in.Inputs != 0 || in.Status != session.StatusEnded || !maps.Equal(in.Labels, odd) {
		s.Errorf("the list says %+v", in)
	}
	if in := s.info("b2"); in.Seq != 2 || len(in.Labels) != 0 {
		s.Errorf("the list says %+v", in)
	}
}

// pages reads the pages of a list. After the first page it appends to a session of that page, which is not listed again.
func (s *suite) pages() {
	const n = 23 // five pages, the last one shorter
	want := map[string]bool{}
	for i := range n {
		id := fmt.Sprintf("s%02d", i)
		want[id] = true
		s.appendTo(id, record(1, true, `{}`))
	}
	q := session.Query{Limit: 5}
	for first := true; first || q.After != ""; first = false {
		page, err := s.store.List(s.Context(), q)
		if err != nil {
			s.Fatal(err)
		}
		if len(page.Infos) > q.Limit || page.Next != "" && len(page.Infos) < q.Limit {
			s.Errorf("a page of at most %d has %d sessions; the next is %q", q.Limit, len(page.Infos), page.Next)
		}
		for _, in := range page.Infos {
			if !want[in.ID] {
				s.Errorf("session %s is listed twice", in.ID)
			}
			delete(want, in.ID)
		}
		if first {
			s.appendTo(page.Infos[2].ID, record(2, false, `2`))
		}
		q.After = page.Next
	}
	if len(want) > 0 {
		s.Errorf("no page has %v", slices.Sorted(maps.Keys(want)))
	}
	for _, after := range []string{"x", "2026-01-01T00:00:00Z/", "/s01", "2026-01-01T00:00:00Z/../x"} {
		if _, err := s.store.List(s.Context(), session.Query{After: after}); err == nil {
			s.Errorf("Query.After %q was accepted", after)
		}
	}
}

// abandoned checks that a session whose last record has the status working is abandoned once no writer has it open.
func (s *suite) abandoned() {
	log := s.open("a")
	rec := record(1, true, `{}`)
	rec.Status = session.StatusWorking
	s.append(log, rec)
	for range 20 { // so often that a list that locks the session would make Append below fail
		if in := s.info("a"); in.Status != session.StatusWorking {
			s.Fatalf("the status of the open session is %q", in.Status)
		}
	}
	next := record(2, false, `2`)
	next.Status = session.StatusWorking
	s.append(log, next)
	s.close(log)
	if in := s.info("a"); in.Status != session.StatusAbandoned {
		s.Errorf("the status of the closed session is %q", in.Status)
	}
	if got := s.listIDs(session.Query{Status: []session.Status{session.StatusAbandoned}}); !slices.Equal(got, []string{"a"}) {
		s.Errorf("abandoned are %v", got)
	}
	if got := s.listIDs(session.Query{Status: []session.Status{session.StatusWorking}}); len(got) > 0 {
		s.Errorf("working are %v", got)
	}
}

// recordLimits checks that nothing of an invalid record is stored.
func (s *suite) recordLimits() {
	labels := map[string]string{}
	for i := range 17 {
		labels[fmt.Sprint(i)] = "x"
	}
	log := s.open("a")
	one := record(1, true, `{}`)
	one.Events = []session.Event{eventOf(3), eventOf(7)}
	s.append(log, one)
	for name, change := range map[string]func(*session.Record){
		"17 labels":                 func(r *session.Record) { r.Labels = labels },
		"a label without a key":     func(r *session.Record) { r.Labels = map[string]string{"": "x"} },
		"a long label":              func(r *session.Record) { r.Labels = map[string]string{"k": strings.Repeat("x", 257)} },
		"a label not in UTF-8":      func(r *session.Record) { r.Labels = map[string]string{"k": "\xff"} },
		"an old event":              func(r *session.Record) { r.Events = []session.Event{eventOf(7)} },
		"events in disorder":        func(r *session.Record) { r.Events = []session.Event{eventOf(9), eventOf(8)} },
		"an event that is not JSON": func(r *session.Record) { r.Events = []session.Event{{Seq: 8, Data: []byte(`{`)}} },
		"an input that never came":  func(r *session.Record) { r.Consumed = []session.ConsumedInput{{ID: "in"}} },
	} {
		rec := record(2, false, `2`)
		change(&rec)
		if err := log.Append(s.Context(), rec); err == nil || errors.Is(err, session.ErrConflict) {
			s.Errorf("%s: %v", name, err)
		}
	}
	two := record(2, false, `2`)
	two.Events = []session.Event{eventOf(8)}
	s.append(log, two)
	one.Events, two.Events = nil, nil
	s.expectRecords(log, "a", one, two)
}

// eventOf returns an event with a number.
func eventOf(seq int64) session.Event {
	return session.Event{Seq: seq, Data: fmt.Appendf(nil, `{"seq":%d,"type":"test"}`, seq)}
}
