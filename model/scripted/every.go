package scripted

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// CallEvery answers with one call of each tool that the model is shown, in order, except for those named. The
// arguments are made from the tool's schema and are valid. If none can be found for a schema (an unusual pattern, a
// contradiction), the request fails with an error that names the tool.
func CallEvery(except ...string) Turn {
	return Func(func(req *model.Request) (Turn, error) {
		var turn Turn
		for _, t := range req.Tools {
			if slices.Contains(except, t.Name) {
				continue
			}
			args, err := sampleArguments(t)
			if err != nil {
				return Turn{}, fmt.Errorf("scripted model: arguments for tool %q: %w", t.Name, err)
			}
			turn = turn.And(Call(t.Name, args))
		}
		if len(turn.parts) == 0 {
			return Say("No tool to call."), nil
		}
		return turn, nil
	})
}

// sampleArguments makes arguments for a tool and validates them, including formats. It fails if the schema does not
// compile or the sample is not valid. A tool without a schema gets an empty object.
func sampleArguments(t tool.Info) (json.RawMessage, error) {
	if len(t.Input) == 0 {
		return json.RawMessage("{}"), nil
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(t.Input))
	if err != nil {
		return nil, fmt.Errorf("read the schema: %w", err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.UseLoader(jsonschema.SchemeURLLoader{}) // loads nothing: schemas are untrusted
	if err := c.AddResource("schema:", doc); err != nil {
		return nil, err
	}
	schema, err := c.Compile("schema:")
	if err != nil {
		return nil, err
	}
	v := sample(schema, 0)
	if err := schema.Validate(v); err != nil {
		return nil, fmt.Errorf("found no value that fits the schema; tried %v: %w", v, err)
	}
	return json.Marshal(v)
}
