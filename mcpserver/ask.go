package mcpserver

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/kitbag-go/kitbag/internal/denial"
	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/internal/visible"
	"github.com/kitbag-go/kitbag/permission"
)

// A reply is the client's answer to a question about a call.
type reply struct {
	Action  string `json:"action"` // "accept", "decline" or "cancel"
	Content struct {
		Remember bool `json:"remember"`
	} `json:"content"`
}

// refusal decodes the client's answer into got. It returns the result of a call that is not allowed, or nil if the
// call is allowed. A question may be cancelled without the user having seen it, for example by a gateway whose own
// client cannot ask. Therefore the text names the rule, as in cannotAsk.
func refusal(name string, d permission.Decision, raw json.RawMessage, got *reply) object {
	switch err := strictjson.Unmarshal(raw, got); {
	case len(raw) == 0:
		return failure(fmt.Sprintf("The user must allow this call of %s, but the client sent no answer to the question. Call it again to ask again.", name))
	case err != nil:
		return failure(fmt.Sprintf("The user must allow this call of %s, but the client's answer cannot be read (%.80s), a fault of the client. Continue without the call.", name, raw))
	case got.Action == "accept":
		return nil
	case got.Action == "decline":
		return failure(denial.Refused(name, ""))
	case got.Action == "cancel":
		text := fmt.Sprintf("The user must allow this call of %s (%s), but the question was cancelled: the user dismissed it, or the client cannot ask the user.", name, d.Reason)
		return failure(text + remedy(d))
	}
	return failure(fmt.Sprintf("The user must allow this call of %s, but the client's answer has the action %q; it must be accept, decline or cancel, a fault of the client. Continue without the call.", name, got.Action))
}

// cannotAsk returns the result of a call whose client cannot ask its user. It names the rule that would allow
// the call; no rule can answer a question about safety.
func cannotAsk(name string, d permission.Decision) object {
	return failure(fmt.Sprintf("The user must allow this call of %s (%s), but this client cannot ask the user.", name, d.Reason) + remedy(d))
}

// couldNotAsk returns the result of a call that the user could not be asked about because of an error.
func couldNotAsk(name string, err error) object {
	return failure(fmt.Sprintf("The user must allow this call of %s, but could not be asked: %v. Continue without the call, or say what you would need.", name, err))
}

// remedy says how a call can be allowed without asking the user.
func remedy(d permission.Decision) string {
	if rules := texts(d.Suggest); len(rules) > 0 {
		return " The server's owner can allow it by the rule " + strings.Join(rules, ", ") + "."
	}
	return " No rule allows it; use a client that supports elicitation."
}

// texts returns rules as people write them.
func texts(rules []permission.Rule) []string {
	out := make([]string, len(rules))
	for i, r := range rules {
		out[i] = r.String()
	}
	return out
}

// maxShown is the largest question about a call, in bytes. A client may cut off a longer one, and the user
// would then allow text that they have not seen.
const maxShown = 7 << 10

// form returns the question. It shows the tool's preview of the call, or the arguments if there is none, and
// the text that will run if the arguments do not contain it, and says how far the call is confined. With remember it
// also offers the suggested rules. Invisible characters are escaped. A question that is too long is an error.
func form(a pendingCall, remember bool) (object, error) {
	c, d := a.call, a.decision
	shown, hidden := visible.Escape(cmp.Or(a.preview, string(c.Input)), nil)
	if text := d.Judgement.Differs(c.Input); text != "" {
		text, more := visible.Escape(text, nil)
		shown += "\nThis is what will run:\n" + text
		hidden += more
	}
	if hidden > 0 {
		shown += fmt.Sprintf("\n(%d invisible characters are written as <U+…>)", hidden)
	}
	reason, _ := visible.Escape(d.Reason, nil)
	if r := reach(d); r != "" {
		reason += "; " + r
	}
	if n := len(shown) + len(reason); n > maxShown {
		return nil, fmt.Errorf("the question would have %d bytes, and the limit is %d; make a smaller call, or have the server's owner allow it by a rule", n, maxShown)
	}
	properties := object{}
	if rules := texts(d.Suggest); remember && len(rules) > 0 {
		properties["remember"] = object{
			"type": "boolean", "default": false, "title": "Do not ask again in this session",
			"description": "adds the rule " + strings.Join(rules, ", "),
		}
	}
	return object{
		"mode":            "form",
		"message":         fmt.Sprintf("Allow %s?\n%s\n(%s)", c.Tool, shown, reason),
		"requestedSchema": object{"type": "object", "properties": properties},
	}, nil
}

// reach describes the confinement of a call, "" if there is none.
func reach(d permission.Decision) string {
	switch j := &d.Judgement; {
	case !d.Confined || j.Profile == "":
		return ""
	case j.Profile == permission.ProfileOpen:
		return "it runs outside the sandbox"
	case j.Network:
		return "it runs in the sandbox, with the network"
	}
	return "it runs in the sandbox, without the network"
}
