// Package tooltest tests a [tool.Tool]: what the tool's Info promises, and what programs that run tools rely on.
//
//	func TestWeather(t *testing.T) { tooltest.Run(t, weather) }
//
// The tool is really called, about a thousand times, with random arguments that fit its schema. So give the tool a
// temporary directory, a test server or a fake. Run the test with -race.
package tooltest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Options limit what Run does.
type Options struct {
	// Calls is how many arguments are made from the schema, and how many from random bytes. Zero is 1000. The tool is
	// called with those that are valid.
	Calls int

	// Context is passed to each call; nil means the context of the test. Use it for values that the tool needs, such
	// as a [toolstate.State].
	Context context.Context
}

// cancelTimeout is how long a tool may take to end once its context has. It is long because a machine may be busy.
const cancelTimeout = 10 * time.Second

// Run tests tl. It reports each of these as an error of the test:
//
//   - a description that changes, or that cannot be offered to a model
//   - a schema that is not valid under draft 2020-12
//   - arguments that are accepted although they were cut off or are not an object
//   - a panic, under random arguments that fit the schema and random bytes
//   - a call that does not end when its context does
//   - blocks that are not allowed in a result, and structured results that do not
//     fit the output schema
//   - calls that are judged differently if the tool is wrapped
//
// Calls also run in parallel, for the race detector. The random arguments are the same in each run of the test. At most
// one Options may be given.
func Run(t *testing.T, tl tool.Tool, opts ...Options) {
	t.Helper()
	c := checker{tool: tl, info: tl.Info(), rng: rand.New(rand.NewPCG(1, 2)), ctx: t.Context(), calls: 1000}
	if len(opts) > 1 {
		t.Fatal("tooltest.Run: put the options into one Options")
	}
	for _, o := range opts {
		if o.Calls > 0 {
			c.calls = o.Calls
		}
		if o.Context != nil {
			c.ctx = o.Context
		}
	}
	for _, err := range c.check() {
		t.Error(err)
	}
}

// A checker tests one tool. Only call and addProblem may be called from several goroutines.
type checker struct {
	tool   tool.Tool
	info   tool.Info
	output *jsonschema.Schema // nil if the tool has no valid output schema
	ctx    context.Context
	rng    *rand.Rand
	calls  int // Options.Calls

	mu       sync.Mutex
	problems []error
	reported map[string]bool // first lines of problems
}

// addProblem records a problem unless one with the same first line is recorded: many inputs may cause the same panic.
func (c *checker) addProblem(format string, a ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := fmt.Errorf("tool %q: "+format, append([]any{c.info.Name}, a...)...)
	firstLine, _, _ := strings.Cut(err.Error(), "\n")
	if c.reported[firstLine] {
		return
	}
	if c.reported == nil {
		c.reported = map[string]bool{}
	}
	c.reported[firstLine] = true
	c.problems = append(c.problems, err)
}

// check runs all checks and returns the problems. An external tool is not called.
func (c *checker) check() []error {
	c.checkInfo()
	c.checkRefusals()
	inputs := c.validInputs()
	c.checkCapabilities(inputs)
	if c.info.External {
		return c.problems
	}
	c.checkCancellation(inputs)
	for _, in := range inputs {
		c.call(c.ctx, in)
	}
	c.callInParallel(inputs)
	return c.problems
}

// checkInfo checks the tool's Info and the signatures of its capabilities, and compiles the output schema.
func (c *checker) checkInfo() {
	if err := tool.CheckCapabilities(c.tool); err != nil {
		c.addProblem("%v", err)
	}
	if err := c.info.Check(); err != nil {
		c.addProblem("%w", err)
	}
	if c.info.Description == "" {
		c.addProblem("it has no description; a model cannot know when to call it")
	}
	if !reflect.DeepEqual(c.info, c.tool.Info()) {
		c.addProblem("Info returned something else the second time")
	}
	if _, err := compile(c.info.Input); err != nil {
		c.addProblem("the input schema is not valid: %w", err)
	}
	if c.info.Output != nil {
		s, err := compile(c.info.Output)
		if err != nil {
			c.addProblem("the output schema is not valid: %w", err)
		}
		c.output = s
	}
}

// compile compiles a schema under draft 2020-12, the library's default. References to files and URLs are errors.
func compile(raw json.RawMessage) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(raw)))
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(jsonschema.SchemeURLLoader{}) // knows no URL scheme
	if err := compiler.AddResource("tool://schema", doc); err != nil {
		return nil, err
	}
	return compiler.Compile("tool://schema")
}

// checkRefusals checks that arguments that were cut off or are not an object are refused.
func (c *checker) checkRefusals() {
	for _, bad := range []string{`{`, `{"`, `{"a`, "```json\n{", `nothing`} {
		args, err := tool.Arguments(c.tool, json.RawMessage(bad))
		if _, ok := errors.AsType[*tool.ArgumentError](err); !ok {
			c.addProblem("the arguments %q became %s (error %v); want a *tool.ArgumentError", bad, args.JSON, err)
		}
	}
}

// validInputs returns valid arguments, made from the schema and from random bytes.
func (c *checker) validInputs() []json.RawMessage {
	var valid []json.RawMessage
	keep := func(raw []byte) {
		args, err := tool.Arguments(c.tool, raw)
		if err == nil {
			valid = append(valid, args.JSON)
		} else if _, ok := errors.AsType[*tool.ArgumentError](err); !ok {
			c.addProblem("the arguments %q led to an error of type %T; want a *tool.ArgumentError", raw, err)
		}
	}
	g := generator{rng: c.rng}
	if err := json.Unmarshal(c.info.Input, &g.root); err != nil {
		return nil // checkInfo reported the error
	}
	for range c.calls {
		if raw, err := json.Marshal(g.value(g.root, 0)); err == nil {
			keep(raw)
		}
	}
	for range c.calls {
		raw := make([]byte, c.rng.IntN(40))
		for i := range raw {
			raw[i] = byte(c.rng.Uint32())
		}
		keep(raw)
	}
	return valid
}

// checkCapabilities checks that the capabilities do not panic, and that a wrapper does not change the judgement.
func (c *checker) checkCapabilities(inputs []json.RawMessage) {
	wrapped := tool.With(c.tool)
	// A capability that trusts its input panics on {} or on a path that is a number.
	careless := []json.RawMessage{[]byte(`{}`), []byte(`{"path":1}`)}
	for _, in := range slices.Concat(inputs[:min(len(inputs), 50)], careless) {
		if stack := panicStack(func() {
			c.judge(in)
			if p, ok := tool.As[tool.Previewer](c.tool); ok {
				_, _ = p.Preview(c.ctx, in)
			}
			direct, indirect := tool.PermissionCall(c.tool, in), tool.PermissionCall(wrapped, in)
			if direct.ReadOnly != indirect.ReadOnly || !slices.Equal(direct.Borrows, indirect.Borrows) ||
				reflect.TypeOf(direct.Checker) != reflect.TypeOf(indirect.Checker) {
				c.addProblem("a wrapper hides a capability")
			}
		}); stack != "" {
			c.addProblem("a capability panicked on %s: %s", in, stack)
		}
	}
}

// judge calls the tool's Judge and Checker directly: PermissionCall and Decide hide their panics.
func (c *checker) judge(input json.RawMessage) {
	j, ok := tool.As[tool.Judge](c.tool)
	if !ok {
		return
	}
	call := &permission.Call{Tool: c.info.Name, Input: input, Checker: permission.BaseChecker{}}
	j.Judge(call)
	p := &permission.Policy{}
	call.Checker.Check(p)
	call.Checker.Suggest(p)
	call.Checker.Parts(p)
	_, _ = call.Checker.Match(p, permission.Rule{Tool: c.info.Name, Pattern: "x", Behavior: permission.Deny})
}

// checkCancellation checks that a call whose context has ended ends too.
func (c *checker) checkCancellation(inputs []json.RawMessage) {
	if len(inputs) == 0 {
		return
	}
	ctx, cancel := context.WithCancel(c.ctx)
	cancel() // before the call, so that the test does not depend on timing
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.call(ctx, inputs[0])
	}()
	select {
	case <-done:
	case <-time.After(cancelTimeout):
		c.addProblem("a call did not end within %v although its context had", cancelTimeout)
	}
}

// call ranges over the tool itself: tool.Run would turn a panic into a result.
func (c *checker) call(ctx context.Context, input json.RawMessage) {
	if stack := panicStack(func() {
		for ch, err := range c.tool.Call(ctx, tool.Call{ID: "call_1", Name: c.info.Name, Input: input}) {
			if err != nil {
				return
			}
			c.checkChunk(ch, input)
		}
	}); stack != "" {
		c.addProblem("it panicked on %s: %s", input, stack)
	}
}

// checkChunk checks a piece of a result.
func (c *checker) checkChunk(ch tool.Chunk, input json.RawMessage) {
	switch ch.Block.(type) {
	case nil, *message.Text, *message.Data:
	default:
		c.addProblem("it returned a block of type %T; only *message.Text and *message.Data are allowed", ch.Block)
	}
	if ch.Structured == nil || c.output == nil {
		return
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(ch.Structured)))
	if err == nil {
		err = c.output.Validate(doc)
	}
	if err != nil {
		c.addProblem("the structured result does not fit the output schema\nof %s: %s: %v", input, ch.Structured, err)
	}
}

// callInParallel makes calls on up to 8 goroutines, for the race detector.
func (c *checker) callInParallel(inputs []json.RawMessage) {
	var wg sync.WaitGroup
	for i := range min(8, len(inputs)) {
		wg.Go(func() {
			for _, in := range inputs[i:min(i+8, len(inputs))] {
				c.call(c.ctx, in)
			}
			if c.tool.Info().Name != c.info.Name {
				c.addProblem("Info changed while calls ran")
			}
		})
	}
	wg.Wait()
}

// panicStack calls fn and, if fn panics, returns the panic's value and the stack, else "".
func panicStack(fn func()) (stack string) {
	defer func() {
		if r := recover(); r != nil {
			stack = fmt.Sprintf("%v\n%s", r, debug.Stack())
		}
	}()
	fn()
	return ""
}
