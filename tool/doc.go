// Package tool makes and runs the tools that a model can call.
//
// Most tools are Go functions. [New] makes one of a function with a typed argument:
//
//	type addIn struct {
//		A int `json:"a" jsonschema_description:"the first number"`
//		B int `json:"b,omitempty" jsonschema:"default=1,minimum=0"`
//	}
//	add, err := tool.New("add", "Adds two numbers.",
//		func(ctx context.Context, in addIn) (int, error) { return in.A + in.B, nil })
//
// The argument's type becomes the JSON Schema that the model sees, and what the model sends is checked against
// it before the function runs. [NewStream] is for functions that return their result in pieces, [Methods]
// makes a tool of each method of a value, [External] describes a tool that the program itself runs. Anything else that a
// model may call, for example an MCP tool, implements [Tool] itself.
//
// A call has three steps, and every program that runs tools must do them in this order: [Arguments] makes valid
// JSON of what the model sent, [PermissionCall] describes the call for the permission engine, and [Run] runs the call
// through middleware. The JSON that Arguments returned is used unchanged in the other two steps. A [Collector] joins
// what Run yields into one result.
//
// # Types and schemas
//
// A struct is an object without additional fields. A field is required unless it is a pointer or its json tag says
// omitempty or omitzero. Embedded structs are flattened as encoding/json does it. Other types:
//
//   - time.Time is a date-time, time.Duration a text like "1m30s", []byte
//     base64, json.RawMessage and any are any value
//   - a type with a method UnmarshalText is a text, one with UnmarshalJSON any
//     value, one with JSONSchema() *jsonschema.Schema (of invopop/jsonschema) has
//     the schema that the method returns
//   - a type with a method Enum() []any has just those values
//   - a type that contains itself is a $ref
//
// Descriptions come from the tag jsonschema_description, used unchanged, from the jsonschema tag (description=…),
// or from doc comments, see [github.com/kitbag-go/kitbag/tool/docs]. The jsonschema tag has the other keywords:
// enum, default, minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf, minLength, maxLength, pattern,
// format, minItems, maxItems, uniqueItems, example, required, title. The default of a top-level field is also what
// the function gets if the field is not given; defaults further inside only inform the model.
//
// Channels, functions, complex numbers, interfaces with methods and maps that contain themselves have no schema: New
// fails and names the field. New also fails on two fields with the same JSON name, which encoding/json would ignore,
// and on keywords that allow no value or do not allow the default.
//
// # Results and errors
//
// A bad call never ends a run of the agent: invalid arguments, an error that the function returns, a panic and a
// time-out become results for the model. The stack of a panic goes to the log. Only an error wrapping [ErrAbort] is
// returned to the caller.
//
// A function returns a text, a value, or a [*Result] with images, files and blocks that only the user should see.
//
// # Arguments
//
// Models write JSON that is almost right: with Python's literals, a trailing comma, a number in quotes. Arguments
// repairs such JSON and reports the repairs. It never changes JSON that fits the schema, and it refuses arguments that
// were cut off, since a command without its end is another command.
//
// # Capabilities
//
// A tool can implement further small interfaces
// ([Judge], [Previewer], [Backgrounder], [IdempotentChecker], [Reminder]).
// Find them with [As], never by a type assertion. If a tool does not have one, the safe answer is assumed.
//
// A wrapper is a tool that contains the tool that it calls, in any field. It must have a method
//
//	Unwrap() tool.Tool
//
// that returns that tool; otherwise the wrapper hides its Judge and every other capability. [CheckCapabilities]
// detects a missing Unwrap if the inner tool is embedded, but not if it is in a named field, since a tool may contain
// tools that it does not wrap. The tools that [With] returns have Unwrap.
//
// # What is and what is not a boundary
//
// It is guaranteed that a function gets only arguments that fit its schema, but not that the function ends when its
// context does: [Run] ends the call, but Go cannot stop a function. A tool's Info is an unverified claim of its author.
// Schemas may come from untrusted servers: no file or URL is loaded for a schema, and schemas that would make validation
// too expensive are refused.
package tool
