package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
)

// form is the schema of a form with the given fields.
func form(properties string, required ...string) json.RawMessage {
	o := map[string]any{"type": "object", "properties": json.RawMessage(properties)}
	if len(required) > 0 {
		o["required"] = required
	}
	schema, err := json.Marshal(o)
	if err != nil {
		panic(err) // a constant below is invalid JSON
	}
	return schema
}

const defaults = `{"name":{"type":"string","default":"John Doe"},"age":{"type":"integer","default":30},"score":{"type":"number","default":95.5},
"status":{"type":"string","enum":["active","inactive","pending"],"default":"active"},"verified":{"type":"boolean","default":true}}`

const enums = `{"untitledSingle":{"type":"string","enum":["option1","option2","option3"]},
"titledSingle":{"type":"string","oneOf":[{"const":"value1","title":"First Option"},{"const":"value2","title":"Second Option"},{"const":"value3","title":"Third Option"}]},
"legacyEnum":{"type":"string","enum":["opt1","opt2","opt3"],"enumNames":["Option One","Option Two","Option Three"]},
"untitledMulti":{"type":"array","items":{"type":"string","enum":["option1","option2","option3"]}},
"titledMulti":{"type":"array","items":{"anyOf":[{"const":"value1","title":"First Choice"},{"const":"value2","title":"Second Choice"},{"const":"value3","title":"Third Choice"}]}}}`

// elicit asks the user. The suite looks for id in the question.
func elicit(ctx context.Context, id, text string, schema json.RawMessage) (host.Answer, error) {
	return host.From(ctx).Elicit(ctx, host.Elicitation{ID: id, Message: text, Schema: schema})
}

// field asks for one value of the type.
func field(ctx context.Context, id, text, name, kind string) (string, error) {
	a, err := elicit(ctx, id, text, form(fmt.Sprintf(`{%q:{"type":%q}}`, name, kind), name))
	return fmt.Sprint(a.Content[name]), err
}

func sample(ctx context.Context, prompt string, tokens int) (string, error) {
	s, err := host.From(ctx).Sample(ctx, host.SampleRequest{Messages: []*message.Message{message.User(prompt)}, MaxTokens: tokens})
	return s.Text, err
}

func roots(ctx context.Context) (string, error) {
	uris, err := mcpserver.Roots(ctx)
	return fmt.Sprintf("%d roots %v", len(uris), uris), err
}

// asking returns a tool that sends a request to the client.
func asking(name string, fn func(context.Context) (string, error)) tool.Tool {
	return tool.Must(tool.New(name, "Asks the client.", func(ctx context.Context, _ none) (string, error) { return fn(ctx) }))
}

// showing returns a tool that shows the user a form.
func showing(name string, schema json.RawMessage) tool.Tool {
	return asking(name, func(ctx context.Context) (string, error) {
		a, err := elicit(ctx, "", "Please fill this in.", schema)
		return fmt.Sprintf("%s: %v", a.Action, a.Content), err
	})
}

type promptIn struct {
	Prompt string `json:"prompt"`
}

type messageIn struct {
	Message string `json:"message"`
}

// askingTools returns tools that ask for input, samples and roots, for all protocol revisions.
func askingTools() []tool.Tool {
	const mrtr = "test_input_required_result_"
	return []tool.Tool{
		tool.Must(tool.New("test_sampling", "Asks the client's model.", func(ctx context.Context, in promptIn) (string, error) {
			text, err := sample(ctx, in.Prompt, 100)
			return "LLM response: " + text, err
		})),
		tool.Must(tool.New("test_elicitation", "Asks the user.", func(ctx context.Context, in messageIn) (string, error) {
			a, err := elicit(ctx, "", in.Message, form(`{"username":{"type":"string","description":"User's response"},
				"email":{"type":"string","description":"User's email address"}}`, "username", "email"))
			return fmt.Sprintf("User response: %s, %v", a.Action, a.Content), err
		})),
		showing("test_elicitation_sep1034_defaults", form(defaults)),
		showing("test_elicitation_sep1330_enums", form(enums)),
		asking("test_missing_capability", func(ctx context.Context) (string, error) { return sample(ctx, "hello", 10) }),
		asking(mrtr+"elicitation", func(ctx context.Context) (string, error) {
			name, err := field(ctx, "user_name", "What is your name?", "name", "string")
			return "Hello, " + name + "!", err
		}),
		asking(mrtr+"sampling", func(ctx context.Context) (string, error) { return sample(ctx, "What is the capital of France?", 100) }),
		asking(mrtr+"list_roots", roots),
		asking(mrtr+"request_state", func(ctx context.Context) (string, error) {
			_, err := field(ctx, "confirm", "Please confirm", "ok", "boolean")
			return "state-ok", err
		}),
		asking(mrtr+"tampered_state", func(ctx context.Context) (string, error) {
			_, err := field(ctx, "confirm", "Please confirm", "ok", "boolean")
			return "integrity-ok", err
		}),
		asking(mrtr+"multiple_inputs", func(ctx context.Context) (string, error) {
			var name, greeting, where string
			err := mcpserver.Together(ctx,
				func(ctx context.Context) (err error) {
					name, err = field(ctx, "user_name", "What is your name?", "name", "string")
					return err
				},
				func(ctx context.Context) (err error) {
					greeting, err = sample(ctx, "Generate a greeting", 50)
					return err
				},
				func(ctx context.Context) (err error) { where, err = roots(ctx); return err })
			return fmt.Sprint(greeting, " ", name, ", ", where), err
		}),
		asking(mrtr+"multi_round", func(ctx context.Context) (string, error) {
			name, err := field(ctx, "step1", "Step 1: What is your name?", "name", "string")
			color, err2 := field(ctx, "step2", "Step 2: What is your favorite color?", "color", "string")
			return name + " likes " + color, errors.Join(err, err2)
		}),
		asking(mrtr+"capabilities", func(ctx context.Context) (string, error) {
			a, err := elicit(ctx, "", "A value?", form(`{"value":{"type":"string"}}`))
			text, refused := sample(ctx, "Sample request", 50)
			if errors.Is(refused, host.ErrRefused) {
				refused = nil // either is fine
			}
			return fmt.Sprintf("%s, %q", a.Action, text), errors.Join(err, refused)
		}),
	}
}
