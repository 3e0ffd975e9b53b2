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
// makes a tool of each method of a value, [External] describes one that the host runs. Anything else that a
// model may call, for example an MCP tool, implements [Tool] itself.
//
// A call has three steps, and every program that runs tools must do them in this order: [Arguments] makes valid
// JSON of what the model sent, [PermissionCall] describes the call for the permission engine, and [Run] runs it,
// through middleware. The same bytes are used in all three. A [Collector] joins what Run yields into one result.
//
// # Types and schemas
//
// A struct is an object without additional fields. A field is required unless it is a pointer or its json tag says
// omitempty or omitzero. Embedded structs are flattened as encoding/json does it. Further:
//
//   - time.Time is a date-time, time.Duration a text like "1m30s", []byte
//     base64, json.RawMessage and any are any value
//   - a type with a method UnmarshalText is a text, one with UnmarshalJSON any
//     value, one with JSONSchema() *jsonschema.Schema has the schema that it returns
//   - a type with a method Enum() []any has just those values
//   - a type that contains itself is a $ref
//
// Descriptions come from the tag jsonschema_description, used unchanged, from the jsonschema tag (description=…),
// or from doc comments, see [github.com/kitbag-go/kitbag/tool/docs]. The jsonschema tag has the other keywords:
// enum, default, minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf, minLength, maxLength, pattern,
// format, minItems, maxItems, uniqueItems, example, required, title. A default is also what the function gets if
// the field is not given, at the top level. Channels, functions, complex numbers, interfaces with methods and maps
// that contain themselves have no schema: New fails and names the field. So it does for two fields of one name
// that encoding/json would ignore, and for keywords that leave no value or refuse the default.
//
// # Results and errors
//
// A bad call never ends a run: it becomes a result for the model. That applies to arguments that do not fit, to
// an error that the function returns, to a panic, whose stack goes to the log instead, and to a call that takes
// too long. Only an error wrapping [ErrAbort] is returned to the caller.
//
// A function returns a text, a value, or a [*Result] with images, files and blocks that only the user should see.
//
// # Arguments
//
// Models write JSON that is almost right: with Python's literals, a trailing comma, a number in quotes. Arguments
// repairs that and reports it. It never changes JSON that fits the schema, and it refuses arguments that were cut
// off, since a command without its end is another command.
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
// detects this for a tool that is embedded, but not for one in a named field, since a tool may contain others
// that it does not wrap. [With] needs no method.
//
// # What is and what is not a boundary
//
// A function gets only arguments that fit its schema: that is guaranteed. That it ends when its context does is
// not: [Run] ends the call, but Go cannot stop a function. A tool's Info is an unverified claim of its author.
// Schemas may come from untrusted servers: nothing is loaded for them, and those that would make validation
// too expensive are refused.
package tool
