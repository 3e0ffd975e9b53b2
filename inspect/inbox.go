package inspect

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/internal/visible"
	"github.com/kitbag-go/kitbag/permission"
)

// A question is a call that waits for the user, or for the host.
type question struct {
	Session  string     `json:"session"`
	Title    string     `json:"title"`
	Call     string     `json:"call"`
	Question int64      `json:"question"`
	Asked    time.Time  `json:"asked"`
	Tool     string     `json:"tool"`
	Fields   []argument `json:"fields"`
	External bool       `json:"external,omitempty"` // waits for a result of the host: there is nothing to answer
	Reason   string     `json:"reason,omitempty"`
	Runs     string     `json:"runs,omitempty"`    // the text that would run, if it differs from the arguments
	Parts    []part     `json:"parts,omitempty"`   // of a command, as far as the tool is known here
	Preview  string     `json:"preview,omitempty"` // such as a diff
	Effects  string     `json:"effects"`
	Safety   bool       `json:"safety,omitempty"`
	Rules    []string   `json:"rules,omitempty"` // would answer this question in future
	Keeps    bool       `json:"keeps,omitempty"` // the rules can be kept for good
	Sent     bool       `json:"sent,omitempty"`  // an answer was sent, and waits to be taken
}

// An argument is a member of a call's arguments, in the order in which they were written.
type argument struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// mark is how an invisible or misleading character is written.
func mark(c string) string { return "⟨" + c + "⟩" }

// escape returns text for the user to approve: nothing that would run is hidden in it.
func escape(text string) string {
	out, _ := visible.Escape(text, mark)
	return out
}

// arguments splits a JSON object. Texts are shown as they are, other values as JSON.
func arguments(input json.RawMessage) []argument {
	whole := []argument{{"", escape(string(input))}}
	dec := json.NewDecoder(bytes.NewReader(input))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return whole
	}
	out := []argument{}
	for dec.More() {
		name, err := dec.Token()
		var value json.RawMessage
		if err != nil || dec.Decode(&value) != nil {
			return whole
		}
		var text string
		if json.Unmarshal(value, &text) != nil {
			text = string(value)
		}
		out = append(out, argument{escape(fmt.Sprint(name)), escape(text)})
	}
	return out
}

// listQuestions serves the questions of all sessions, the oldest first.
func (h *Handler) listQuestions(r *http.Request) (any, error) {
	questions := []question{}
	query := session.Query{Status: []session.Status{session.StatusWaiting}, Limit: 500}
	for {
		page, err := h.store.List(r.Context(), query)
		if err != nil {
			return nil, err
		}
		for _, in := range page.Infos {
			d, _, _ := h.digest(r.Context(), in) // the list shows the problem
			questions = append(questions, d.Waiting...)
		}
		if query.After = page.Next; page.Next == "" {
			break
		}
	}
	slices.SortStableFunc(questions, func(a, b question) int { return a.Asked.Compare(b.Asked) })
	return map[string]any{"questions": questions}, nil
}

// questions returns what a session waits for.
func (h *Handler) questions(ctx context.Context, id string, st *agent.State) []question {
	out := []question{}
	for _, ev := range st.Pending() {
		q := question{Session: id, Title: title(st), Asked: ev.Head().Time}
		switch ev := ev.(type) {
		case *event.Approval:
			q.Call, q.Question, q.Tool, q.Fields = ev.Call, ev.Question, escape(ev.Name), arguments(ev.Input)
			q.Reason, q.Runs, q.Preview, q.Safety = escape(ev.Reason), escape(ev.Runs), escape(ev.Preview), ev.Safety
			q.Effects, q.Keeps = effects(ev), h.opts.Keep != nil
			q.Rules = ruleTexts(ev.Suggest)
			if h.opts.Call != nil {
				if call := h.opts.Call(id, ev.Name, ev.Input); call != nil {
					q.Parts = parts(permission.Explain(&h.opts.Policy, call))
				}
			}
			if box, ok := h.store.(session.Inbox); ok {
				_, err := box.Input(ctx, id, inputID(ev.Call, ev.Question))
				q.Sent = err == nil
			}
		case *event.External:
			q.Call, q.Tool, q.Fields, q.External = ev.Call, escape(ev.Name), arguments(ev.Input), true
		}
		out = append(out, q)
	}
	return out
}

func ruleTexts(rules []permission.Rule) []string {
	var out []string
	for _, r := range rules {
		out = append(out, escape(r.String()))
	}
	return out
}

// effects says in words how a call would be confined.
func effects(q *event.Approval) string {
	network := ", without the network"
	if q.Network {
		network = ", with the network"
	}
	switch q.Profile {
	case "":
		return "The tool has no sandbox."
	case permission.ProfileOpen:
		return "It would run outside of the sandbox."
	case permission.ProfileRead:
		return "It would run in the sandbox, read-only" + network + "."
	}
	return "It would run in the sandbox, writing in the working directories" + network + "."
}

// inputID is the id of the answer to a question. It is the same for every click, so that only the first counts.
func inputID(call string, question int64) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d/%s", question, call))
	return "ui-" + hex.EncodeToString(sum[:12])
}

// An answer is what the page sends.
type answer struct {
	Call     string   `json:"call"`
	Question int64    `json:"question"`
	Allow    bool     `json:"allow"`
	Rules    []string `json:"rules"` // to be allowed from now on
	Keep     bool     `json:"keep"`  // the rules, for good
	Reason   string   `json:"reason"`
}

// answer sends an answer to a session's inbox, and runs the session if no other process does.
func (h *Handler) answer(r *http.Request, id string) (any, error) {
	var in answer
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return nil, badBody(err)
	}
	st, _, err := session.Read(r.Context(), h.store, id, 0)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(st.Pending(), func(ev event.Event) bool {
		q, ok := ev.(*event.Approval)
		return ok && q.Call == in.Call && q.Question == in.Question
	})
	if i < 0 {
		return nil, badRequest("this question does not wait any more: it was answered, or replaced by another one")
	}
	c, err := confirm(st.Pending()[i].(*event.Approval), in)
	if err != nil {
		return nil, err
	}
	c.By = "the user on the page"
	if in.Keep && len(c.Rules) > 0 {
		if h.opts.Keep == nil {
			return nil, badRequest("there is no place to keep rules for good; accept them for the session")
		}
		if err := h.opts.Keep(r.Context(), id, c.Rules); err != nil {
			return nil, err
		}
	}
	accepted, err := session.Send(r.Context(), h.store, id, inputID(in.Call, in.Question), c)
	if err != nil {
		return nil, err
	}
	h.rerun(id)
	return map[string]any{"accepted": accepted, "note": h.answerNote()}, nil
}

// confirm makes the answer to q.
func confirm(q *event.Approval, in answer) (event.Confirm, error) {
	if !in.Allow {
		return q.Deny(in.Reason), nil
	}
	var rules []permission.Rule
	for _, text := range in.Rules {
		var rule permission.Rule
		if i := slices.IndexFunc(q.Suggest, func(s permission.Rule) bool { return escape(s.String()) == text }); i >= 0 {
			rule = q.Suggest[i]
		} else {
			var err error
			if rule, err = permission.ParseRule(text, permission.Allow); err != nil {
				return event.Confirm{}, badRequest(err.Error())
			}
			rule.Source = "edited"
		}
		if rule.Tool != q.Name { // the agent would refuse the answer, and Options.Keep would keep a rule about other tools
			return event.Confirm{}, badRequest(fmt.Sprintf("the rule %s is not only about %s; keep the name of the tool", rule, q.Name))
		}
		rules = append(rules, rule)
	}
	return q.Allow(rules...), nil
}

// answerNote says what happens with an answer.
func (h *Handler) answerNote() string {
	if h.opts.Resume == nil {
		return "The answer is stored. The program that runs this session takes it; if it does not run, start it."
	}
	return "The answer is stored, and the session continues."
}

// resume runs a session, such as one that failed.
func (h *Handler) resume(r *http.Request, id string) (any, error) {
	if h.opts.Resume == nil {
		return nil, badRequest("this page cannot run the session; start the program that it belongs to")
	}
	if _, _, err := session.Read(r.Context(), h.store, id, 0); err != nil { // it must exist
		return nil, err
	}
	h.rerun(id)
	return map[string]any{}, nil
}

// resumed are the sessions that this handler runs or ran.
type resumed struct {
	mu   sync.Mutex
	byID map[string]*rerun
}

type rerun struct {
	runs  bool
	again bool // another answer was sent while it ran
	err   error
}

// state says what became of running a session: "" if nothing is to be said.
func (r *resumed) state(id string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	run := r.byID[id]
	switch {
	case run == nil:
		return ""
	case run.runs:
		return "running"
	case run.err != nil && !errors.Is(run.err, session.ErrConflict):
		return cmp.Or(run.err.Error(), "failed")
	}
	return ""
}

// rerun runs a session with Options.Resume, once at a time.
func (h *Handler) rerun(id string) {
	r := &h.resumed
	if h.opts.Resume == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID == nil {
		r.byID = map[string]*rerun{}
	}
	if run := r.byID[id]; run != nil && run.runs {
		run.again = true
		return
	}
	run := &rerun{}
	r.byID[id] = run
	run.runs = h.start(func() {
		for again := true; again; {
			err := h.runOnce(id)
			r.mu.Lock()
			again = run.again && h.ctx.Err() == nil
			run.err, run.again, run.runs = err, false, again
			r.mu.Unlock()
		}
	})
}

// runOnce runs a session as its State says.
func (h *Handler) runOnce(id string) error {
	st, _, err := session.Read(h.ctx, h.store, id, 0)
	if errors.Is(err, fs.ErrNotExist) { // it begins with the message that was sent to it
		st, err = new(agent.State), nil
	}
	if err != nil {
		return err
	}
	with, err := VariantOf(st)
	if err != nil {
		return fmt.Errorf("the copy does not run, since its model and policy cannot be read: %w; make another copy", err)
	}
	return h.opts.Resume(h.ctx, id, with)
}
