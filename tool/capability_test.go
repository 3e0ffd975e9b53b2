package tool_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

type bytesPreview struct{ tool.Tool }

func (bytesPreview) Preview(context.Context, []byte) (string, error) { return "", nil }

type noContext struct{ tool.Tool }

func (noContext) Preview(json.RawMessage) (string, error) { return "", nil }

type valueJudge struct{ tool.Tool }

func (*valueJudge) Judge(*permission.Call) {}

type voidJudge struct{ tool.Tool }

func (voidJudge) Judge(permission.Call) {}

type errorUnwrap struct{ tool.Tool }

func (errorUnwrap) Unwrap() error { return nil }

type wrapping struct{ tool.Tool }

func (w wrapping) Unwrap() tool.Tool { return w.Tool }

type hiding struct{ tool.Tool }

type deeper struct{ *hiding }

type unexported interface{ tool.Tool }

type hidingUnexported struct{ unexported }

type endless struct {
	tool.Tool
	_ []string // makes it incomparable
}

func (e endless) Unwrap() tool.Tool { return e }

// TestEndlessUnwrap: a tool that unwraps to itself is refused, and a call of it is a safety question.
func TestEndlessUnwrap(t *testing.T) {
	e := endless{Tool: tool.Must(tool.New("echo", "", func(context.Context, echoIn) (string, error) { return "", nil }, tool.Options{ReadOnly: true}))}
	if err := tool.CheckCapabilities(e); err == nil || !strings.Contains(err.Error(), "tool_test.endless unwraps to more than 100 tools") {
		t.Error(err)
	}
	if _, ok := tool.As[tool.Reminder](e); ok {
		t.Error("it has a Reminder")
	}
	c := tool.PermissionCall(e, json.RawMessage(`{}`))
	allow := []permission.Rule{{Tool: "echo", Behavior: permission.Allow}}
	if d := permission.Decide(&permission.Policy{TrustReadOnly: true, Rules: allow}, c); d.Behavior != permission.Ask || !d.Safety {
		t.Errorf("%+v", d)
	}
	self := &hiding{}
	self.Tool = self
	if err := tool.CheckCapabilities(self); err == nil {
		t.Error("a tool that embeds itself is accepted")
	}
}

// TestNearMisses: a method that is almost one of a capability is an error that shows both signatures.
func TestNearMisses(t *testing.T) {
	if misnamed := tool.MisnamedCapabilities(); len(misnamed) > 0 {
		t.Errorf("the table names other methods than those of %v", misnamed)
	}
	echo := tool.Must(tool.New("echo", "", func(context.Context, echoIn) (string, error) { return "", nil }))
	for _, row := range []struct {
		tool tool.Tool
		want string
	}{
		{echo, ""},
		{nil, ""},
		{guarded{}, ""},
		{&valueJudge{echo}, ""},
		{tool.With(tool.With(echo)), ""},
		{bytesPreview{echo}, "tool_test.bytesPreview has the method Preview(context.Context, []uint8) (string, error), which is not called; the capability is Preview(context.Context, json.RawMessage) (string, error)"},
		{noContext{echo}, "Preview(json.RawMessage) (string, error), which is not called"},
		{valueJudge{echo}, "the method Judge on its pointer, which is not called; give a pointer"},
		{voidJudge{echo}, "Judge(permission.Call), which is not called; the capability is Judge(*permission.Call)"},
		{errorUnwrap{echo}, "Unwrap() error, which is not called; the capability is Unwrap() tool.Tool"},
		{hiding{echo}, ""},
		{&hiding{echo}, ""},
		{hiding{guarded{}}, "tool_test.hiding hides the Judge of the tool that it embeds; give it a method Unwrap() tool.Tool"},
		{&hiding{tool.With(guarded{})}, "*tool_test.hiding hides the Judge"},
		{deeper{&hiding{guarded{}}}, "tool_test.deeper hides the Judge"},
		{tool.With(hiding{hiding{guarded{}}}), "tool_test.hiding hides the Judge"},
		{hidingUnexported{guarded{}}, "tool_test.hidingUnexported embeds a tool as the unexported interface tool_test.unexported, whose Judge cannot be found; give it a method Unwrap() tool.Tool"},
		{&hidingUnexported{hiding{echo}}, "*tool_test.hidingUnexported embeds a tool as the unexported interface"},
		{hiding{hidingUnexported{guarded{}}}, "tool_test.hiding hides the Judge of the tool that it embeds"},
		{&hidingUnexported{}, ""},
		{&valueJudge{guarded{}}, ""},
		{tool.With(wrapping{bytesPreview{echo}}), "tool_test.bytesPreview has the method Preview"},
	} {
		for range 2 { // the second time from the cache
			err := tool.CheckCapabilities(row.tool)
			if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("%T: %v, want %q", row.tool, err, row.want)
			}
		}
	}
}
