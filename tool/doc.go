// Package tool makes and runs the tools that a model can call.
//
// Most tools are Go functions. [New] makes one of a function with a typed
// argument:
//
//	type addIn struct {
//		A int `json:"a" jsonschema_description:"the first number"`
//		B int `json:"b,omitempty" jsonschema:"default=1,minimum=0"`
//	}
//	add, err := tool.New("add", "Adds two numbers.",
//		func(ctx context.Context, in addIn) (int, error) { return in.A + in.B, nil })
//
// The argument's type becomes the JSON Schema the model sees, and what the
// model sends is checked against it before the function runs. [NewStream] is
// for functions that return their result in pieces, [Methods] makes a tool of
// each method of a value, [External] describes one that the host runs. Anything
// else that a model may call, an MCP tool for instance, implements [Tool]
// itself.
//
// A call has three steps, which every program that runs tools takes in this
// order: [Arguments] makes valid JSON of what the model sent,
// [PermissionCall] describes the call for the permission engine, and [Run]
// runs it, through middleware. The same bytes go through all three. What Run
// yields, a [Collector] joins into one result.
//
// # Types and schemas
//
// A struct is an object without additional fields. A field is required unless
// it is a pointer or its json tag says omitempty or omitzero. Embedded structs
// are flattened as encoding/json does it. Further:
//
//   - time.Time is a date-time, time.Duration a text like "1m30s", []byte
//     base64, json.RawMessage and any are any value
//   - a type with a method UnmarshalText is a text, one with UnmarshalJSON any
//     value, one with JSONSchema() *jsonschema.Schema what that returns
//   - a type with a method Enum() []any has just those values
//   - a type that contains itself is a $ref
//
// Descriptions come from the tag jsonschema_description, taken as it is, from
// the jsonschema tag (description=…), or from doc comments, see [github.com/kitbag-go/kitbag/tool/docs]. The
// jsonschema tag has the other keywords: enum, default, minimum, maximum,
// exclusiveMinimum, exclusiveMaximum, multipleOf, minLength, maxLength, pattern,
// format, minItems, maxItems, uniqueItems, example, required, title. A default
// is also what the function gets if the field is not given, at the top level.
// Channels, functions, complex numbers, interfaces with methods and maps that
// contain themselves have no schema: New fails and names the field. So it does for two
// fields of one name that encoding/json would ignore.
//
// # Results and errors
//
// A bad call never ends a run: it becomes a result the model reads. That goes
// for arguments that do not fit, for an error that the function returns, whose
// text the model reads, for a panic, whose stack goes to the log instead, and
// for a call that takes too long. Only an error wrapping [ErrAbort] goes
// further.
//
// A function returns a text, a value, or a [*Result] with pictures, files and
// blocks that only the user should see.
//
// # Arguments
//
// Models write JSON that is almost right: with Python's literals, a trailing
// comma, a number in quotes. Arguments repairs that and reports it. It never changes
// JSON that fits the schema, and it refuses arguments that were cut off, since a
// command without its end is another command.
//
// # Capabilities
//
// A tool can implement further small interfaces
// ([Judge], [Previewer], [Backgrounder], [IdempotentChecker], [Reminder]).
// Find them with [As], never by a type assertion. The safe answer is assumed for an absent one.
//
// A wrapper is a tool that holds the tool it calls, in whatever field. It must have a method
//
//	Unwrap() tool.Tool
//
// that returns that tool, or the wrapper hides its Judge and every other capability.
// [CheckCapabilities] finds this for a tool that is embedded; in a field with a name nothing does,
// since a tool may hold others that it does not stand for. [With] needs no method.
//
// # What is and what is not a boundary
//
// That a function sees only arguments that fit its schema is a promise. That it
// ends when its context does is not: [Run] ends the call, but Go cannot stop a
// function. A tool's Info is an unverified claim of its author. Schemas may come from
// untrusted servers: nothing is loaded for them, and those that would make validation
// explode are refused.
package tool
