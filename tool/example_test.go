package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

// show makes a call like an agent, without permissions,
// and prints what the model reads.
func show(ctx context.Context, t tool.Tool, sent string, mw ...tool.Middleware) {
	args, err := tool.Arguments(t, json.RawMessage(sent))
	if err != nil {
		fmt.Println(err)
		return
	}
	c := tool.Call{ID: "call_1", Name: t.Info().Name, Input: args.JSON}
	col := tool.NewCollector(c)
	for chunk, err := range tool.Run(ctx, t, c, mw...) {
		if err != nil {
			fmt.Println("the run ends:", err)
			return
		}
		col.Add(chunk)
	}
	fmt.Printf("%s: %s\n", col.Result().Outcome, col.Result().Text())
}

// A function becomes a tool. The arguments of the model are repaired if that is
// safe, or else refused with an error that helps the model to correct them.
func ExampleNew() {
	type weatherIn struct {
		City string `json:"city" jsonschema_description:"the city, in English"`
		Days int    `json:"days,omitempty" jsonschema:"minimum=1,maximum=7,default=1"`
	}
	weather := tool.Must(tool.New("weather", "Tells the weather.",
		func(_ context.Context, in weatherIn) (string, error) {
			return fmt.Sprintf("%s, %d day(s): sun", in.City, in.Days), nil
		}, tool.Options{ReadOnly: true}))

	ctx := context.Background()
	show(ctx, weather, `{"city": "Ulm"}`)
	show(ctx, weather, `{'city': 'Ulm', 'days': '3',}`)
	show(ctx, weather, `{"town": "Ulm", "days": 9}`)
	show(ctx, weather, `{"city": "Ul`)
	// Output:
	// success: Ulm, 1 day(s): sun
	// success: Ulm, 3 day(s): sun
	// The arguments of weather do not fit its schema:
	// - city: missing (string; the city, in English)
	// - days: got 9, want at most 7
	// - town: no such field; did you mean "city"?
	// A valid example: {"days": 1, "city": "…"}
	// The arguments of weather were cut off after 12 bytes, so nothing was run. Send the whole call again; if it is long, do the work in smaller pieces.
}

// Pieces of one text share an id, so that a user interface can show it grow.
func ExampleNewStream() {
	count := tool.Must(tool.NewStream("count", "Counts.", func(_ context.Context, in struct {
		To int `json:"to"`
	}) iter.Seq2[tool.Chunk, error] {
		return func(yield func(tool.Chunk, error) bool) {
			for i := range in.To {
				if !yield(tool.Chunk{Block: &message.Text{ID: "numbers", Text: fmt.Sprint(i+1, ".")}}, nil) {
					return
				}
			}
			yield(tool.Chunk{}, errors.New("that is all I can"))
		}
	}))
	show(context.Background(), count, `{"to": 3}`)
	// Output:
	// error: 1.2.3.
	// that is all I can
}

// An external tool is described here and run by the host: the agent hands the
// call out and waits for the result.
func ExampleExternal() {
	type askIn struct {
		Question string   `json:"question"`
		Choices  []string `json:"choices,omitempty"`
	}
	ask := tool.Must(tool.External[askIn]("ask_person", "Asks the person in front of the screen."))
	fmt.Println(ask.Info().External)
	args, err := tool.Arguments(ask, json.RawMessage(`{"question": "Which one?", "choices": "[\"a\", \"b\"]"}`))
	fmt.Println(string(args.JSON), args.Repaired, err)
	// Output:
	// true
	// {"question":"Which one?","choices":["a","b"]} [choices: a string taken as an array] <nil>
}

// A middleware sees each call and each chunk.
func ExampleMiddleware() {
	redact := func(next tool.Handler) tool.Handler {
		return func(ctx context.Context, t tool.Tool, call tool.Call) iter.Seq2[tool.Chunk, error] {
			return func(yield func(tool.Chunk, error) bool) {
				for c, err := range next(ctx, t, call) {
					if text, ok := c.Block.(*message.Text); ok {
						c.Block = &message.Text{ID: text.ID, Text: strings.ReplaceAll(text.Text, "hunter2", "***")}
					}
					if !yield(c, err) {
						return
					}
				}
			}
		}
	}
	env := tool.Must(tool.New("env", "Shows the environment.", func(context.Context, struct{}) (string, error) {
		return "PASSWORD=hunter2", nil
	}))
	show(context.Background(), env, `{}`, redact)
	// Output: success: PASSWORD=***
}

type shelter struct{ dogs []string }

func (s *shelter) ListDogs(context.Context, struct{}) ([]string, error) { return s.dogs, nil }

func (s *shelter) AdoptDog(_ context.Context, in struct {
	Name string `json:"name"`
}) (string, error) {
	return in.Name + " is yours", nil
}

// The methods of a value become tools.
func ExampleMethods() {
	tools, err := tool.Methods(&shelter{dogs: []string{"Rex"}}, map[string]tool.Options{"ListDogs": {ReadOnly: true}})
	if err != nil {
		fmt.Println(err)
	}
	for _, t := range tools {
		fmt.Println(t.Info().Name, t.Info().ReadOnly)
	}
	show(context.Background(), tools[1], ``)
	// Output:
	// adopt_dog false
	// list_dogs true
	// success: ["Rex"]
}
