package agent

import (
	"context"
	"encoding/json"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
	"github.com/kitbag-go/kitbag/toolkit"
)

// yielding returns a tool that yields chunks.
func yielding(name string, chunks ...tool.Chunk) tool.Tool {
	return tool.Must(tool.NewStream(name, "Says something.", func(context.Context, struct{}) iter.Seq2[tool.Chunk, error] {
		return func(yield func(tool.Chunk, error) bool) {
			for _, c := range chunks {
				if !yield(c, nil) {
					return
				}
			}
		}
	}, tool.Options{Parallel: true}))
}

// TestSecretInTwoPieces splits a result within a secret, at every position: both pieces are redacted, even if the first
// looks like a secret by itself.
func TestSecretInTwoPieces(t *testing.T) {
	key := "-----BEGIN " + "RSA PRIVATE KEY-----" + strings.Repeat("MIIEvQIBADANBgkq", 3)
	for _, whole := range []string{secret, key} {
		for at := 1; at < len(whole); at++ {
			var texts []string
			keep := func(res *message.ToolResult) {
				var b strings.Builder
				for _, block := range res.Blocks {
					b.WriteString(block.(*message.Text).Text)
				}
				texts = append(texts, b.String(), res.Text())
			}
			cfg := Config{Redact: builtinRules(t), Policy: bypass, Toolkit: toolkit.Of(yielding("say", tool.Text(whole[:at]), tool.Text(whole[at:]))),
				Save: func(_ context.Context, st *State) error {
					for _, c := range reload(t, st).loop.Open {
						if c.Result != nil {
							keep(c.Result)
						}
					}
					return nil
				}}
			a, _ := newAgent(t, cfg, calls(`c1 say {}`), says("done"))
			evs, err := play(t, a, new(State), Say("go"))
			if err != nil {
				t.Fatal(err)
			}
			for _, ev := range of[*event.ToolResult](evs) {
				keep(ev.Result)
				texts = append(texts, ev.Text)
			}
			for _, text := range texts {
				if rest := strings.TrimSpace(text); !strings.HasPrefix(rest, "[redacted: ") || !strings.HasSuffix(rest, "]") {
					t.Fatalf("cut after %d bytes: %q", at, text)
				}
			}
		}
	}
}

// TestSecretsOfASubAgentThatWaits saves the conversation of a sub-agent with a secret in each part of
// a result: it is in the State of the outer run.
func TestSecretsOfASubAgentThatWaits(t *testing.T) {
	leaky := yielding("leak", tool.Text(secret[:20]), tool.Text(secret[20:]),
		tool.Chunk{Block: &message.Data{MediaType: "text/plain", Bytes: []byte("a file with " + secret)}, Meta: map[string]json.RawMessage{secret: json.RawMessage("1")}})
	for depth := 1; depth <= 2; depth++ {
		var j journal
		inner, _ := newAgent(t, Config{Toolkit: toolkit.Of(leaky, noting(&j, "ask", tool.Options{}))}, calls(`s1 leak {}`), calls(`s2 ask {"path":"x"}`), says("helped"))
		for range depth - 1 {
			inner, _ = newAgent(t, Config{Policy: bypass, Toolkit: toolkit.Of(asTool(t, inner))}, calls(`m1 helper {"task":"go"}`), says("helped"))
		}
		cfg := Config{Redact: builtinRules(t), Key: []byte("sixteen bytes ok"), Policy: bypass, Toolkit: toolkit.Of(asTool(t, inner)), Save: func(_ context.Context, st *State) error {
			for c := range callsBelow(t, reload(t, st)) {
				for _, block := range c {
					if d, ok := block.(*message.Data); ok && leaks(string(d.Bytes)) {
						t.Errorf("saved: %s", d.Bytes)
					}
				}
				if text := strings.ReplaceAll(c.Text(), "\n", ""); strings.Contains(text, secret[20:]) {
					t.Errorf("saved: %s", text)
				}
			}
			if leaks(encoded(t, st)) {
				t.Errorf("saved: %s", encoded(t, st))
			}
			return nil
		}}
		a, _ := newAgent(t, cfg, calls(`c1 helper {"task":"go"}`), says("done"))
		st := new(State)
		for in := []Input{Say("go")}; in != nil; {
			if _, err := play(t, a, st, in...); err != nil {
				t.Fatal(err)
			}
			in, st = nil, reload(t, st) // its seal must match
			for _, p := range st.Pending() {
				in = append(in, event.Confirm{Call: p.(*event.Approval).Call, Allow: true})
			}
		}
		equal(t, "ran", j.String(), "ask:x")
	}
}

func asTool(t *testing.T, a *Agent) tool.Tool {
	t.Helper()
	helper, err := AsTool[string, string](a, "helper", "Helps.", nil)
	if err != nil {
		t.Fatal(err)
	}
	return helper
}

// callsBelow ranges over the blocks of results in the States of sub-agents.
func callsBelow(t *testing.T, st *State) iter.Seq[message.Blocks] {
	return func(yield func(message.Blocks) bool) {
		for _, c := range st.loop.Open {
			var sub State
			if c.Sub == nil {
				continue
			}
			if err := json.Unmarshal(c.Sub, &sub); err != nil {
				t.Fatal(err)
			}
			for _, m := range sub.Messages {
				for _, res := range m.ToolResults() {
					if !yield(res.Blocks) {
						return
					}
				}
			}
			callsBelow(t, &sub)(yield)
		}
	}
}

// TestSecretsInNames has a tool, or the server behind it, use a secret as the name of a JSON member.
func TestSecretsInNames(t *testing.T) {
	meta := map[string]json.RawMessage{"x " + secret: json.RawMessage(`{}`), "x " + secret + "A": json.RawMessage(`{"` + secret + `":1}`), "plain": json.RawMessage(`1`)}
	var first string
	for range 10 {
		cfg := Config{Redact: builtinRules(t), Policy: bypass, Toolkit: toolkit.Of(yielding("say", tool.Chunk{Meta: meta})),
			Save: func(_ context.Context, st *State) error {
				if text := encoded(t, st); leaks(text) {
					t.Errorf("saved: %s", text)
				}
				return nil
			}}
		a, _ := newAgent(t, cfg, calls(`c1 say {}`), says("done"))
		evs, err := play(t, a, new(State), Say("go"))
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(of[*event.ToolResult](evs)[0].Result)
		if err != nil || leaks(string(data)) {
			t.Fatalf("%s, %v", data, err)
		}
		if first == "" {
			first = string(data)
		}
		equal(t, "the result in each run", string(data), first)
	}
}

// TestQuestionWhileTheModelSpeaks has a background call ask a question while the model is in the middle of
// a secret.
func TestQuestionWhileTheModelSpeaks(t *testing.T) {
	ask, asked := make(chan struct{}), make(chan struct{})
	behind := atOnce{tool.Must(tool.New("behind", "Asks.", func(ctx context.Context, _ struct{}) (string, error) {
		<-ask
		defer close(asked)
		answer, err := host.From(ctx).Elicit(ctx, host.Elicitation{Message: "Really?", Schema: json.RawMessage(`{"type":"object","properties":{}}`)})
		if err != nil {
			return "", err
		}
		_, err = host.From(ctx).Sample(ctx, host.SampleRequest{Server: "s", Messages: []*message.Message{message.User("x")}, MaxTokens: -1})
		return string(answer.Action), err
	}, tool.Options{}))}
	a, _ := newAgent(t, Config{Background: time.Hour, Redact: builtinRules(t), Policy: bypass, Toolkit: toolkit.Of(behind), Limits: Limits{Samples: -1},
		Elicit: func(context.Context, host.Elicitation) (host.Answer, error) {
			return host.Answer{Action: host.ActionDecline}, nil
		}})
	answers := 0
	a.model = modelFunc(func(context.Context, *model.Request) iter.Seq2[model.Chunk, error] {
		return func(yield func(model.Chunk, error) bool) {
			switch answers++; answers {
			case 1:
				_ = yield(&model.ToolCallDelta{ID: "c1", Name: "behind", Args: "{}"}, nil) && yield(finish(model.FinishToolCalls), nil)
			case 2:
				yield(&model.TextDelta{Text: "The key is " + secret[:20]}, nil)
				close(ask)
				<-asked
				_ = yield(&model.TextDelta{Text: secret[20:] + "."}, nil) && yield(finish(model.FinishStop), nil)
			default:
				_ = yield(&model.TextDelta{Text: "Done."}, nil) && yield(finish(model.FinishStop), nil)
			}
		}
	})
	evs, err := play(t, a, new(State), Say("go"))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "shown", deltas(evs), "The key is [redacted: openai-key].Done.")
	equal(t, "questions", len(of[*event.Elicitation](evs)), 2)
	equal(t, "samples", len(of[*event.Sampling](evs)), 1)
}

// TestPendingIsTheEvent compares pending questions with their events, which were redacted.
func TestPendingIsTheEvent(t *testing.T) {
	var j journal
	a, _ := newAgent(t, Config{Redact: builtinRules(t), Toolkit: toolkit.Of(noting(&j, "note", tool.Options{}))}, calls(`c1 note {"path":"`+secret+`"}`, `c2 note {"path":"b"}`))
	st := new(State)
	evs, err := play(t, a, st, Say("go"))
	if err != nil {
		t.Fatal(err)
	}
	for i, q := range of[*event.Approval](evs) {
		p := st.Pending()[i].(*event.Approval)
		equal(t, "number and call", []any{p.Seq, p.Call, p.Time}, []any{q.Seq, q.Call, q.Time})
	}
}
