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

// readReply reads the client's answer to the question whether a call may run. If it may, refused is nil, and remember says
// whether to allow such calls for the session; otherwise refused is the result of the call, which says why it did not run.
func readReply(name string, d permission.Decision, raw json.RawMessage) (remember bool, refused object) {
	var reply struct {
		Action  string `json:"action"`
		Content struct {
			Remember bool `json:"remember"`
		} `json:"content"`
	}
	switch err := strictjson.Unmarshal(raw, &reply); {
	case len(raw) == 0:
		return false, failure(fmt.Sprintf("The user must allow this call of %s, but the client sent no answer to the question. Call it again to ask again.", name))
	case err != nil:
		return false, failure(fmt.Sprintf("The user must allow this call of %s, but the client's answer cannot be read (%.80s), a fault of the client. Continue without the call.", name, raw))
	case reply.Action == "accept":
		return reply.Content.Remember, nil
	case reply.Action == "decline":
		return false, failure(denial.Refused(name, ""))
	case reply.Action == "cancel": // also sent by a gateway whose own client cannot ask the user
		text := fmt.Sprintf("The user must allow this call of %s (%s), but the question was cancelled: the user dismissed it, or the client cannot ask the user.", name, d.Reason)
		return false, failure(text + remedy(d))
	}
	return false, failure(fmt.Sprintf("The user must allow this call of %s, but the client's answer has the action %q; it must be accept, decline or cancel, a fault of the client. Continue without the call.", name, reply.Action))
}

// cannotAsk returns the result of a call whose client cannot ask its user.
func cannotAsk(name string, d permission.Decision) object {
	return failure(fmt.Sprintf("The user must allow this call of %s (%s), but this client cannot ask the user.", name, d.Reason) + remedy(d))
}

// askFailed returns the result of a call that did not run because err occurred when the user was asked.
func askFailed(name string, err error) object {
	return failure(fmt.Sprintf("The user must allow this call of %s, but could not be asked: %v. Continue without the call, or say what you would need.", name, err))
}

// remedy says how a call can be allowed without asking the user.
func remedy(d permission.Decision) string {
	if rules := ruleTexts(d.Suggest); len(rules) > 0 {
		return " The server's owner can allow it by the rule " + strings.Join(rules, ", ") + "."
	}
	return " No rule allows it; use a client that supports elicitation."
}

// ruleTexts returns rules in the form in which people write them, with invisible characters escaped.
func ruleTexts(rules []permission.Rule) []string {
	out := make([]string, len(rules))
	for i, r := range rules {
		out[i], _ = visible.Escape(r.String(), nil)
	}
	return out
}

// maxQuestion is the largest question about a call, in bytes. Clients cut off longer messages, our own client those
// over 8 KiB ([host.Elicitation.Clean]). The user would then allow text that they have not seen.
const maxQuestion = 7 << 10

// questionFor returns the question whether a call may run. It shows the tool's preview of the call, or else the arguments.
// It adds the text that will run, unless an argument has that text, and says whether a sandbox confines the call.
// If mayRemember is set, the user can accept the suggested rules for the session. Invisible characters are escaped.
func questionFor(p pendingCall, mayRemember bool) (object, error) {
	call, d := p.call, p.decision
	shown, invisible := visible.Escape(cmp.Or(p.preview, string(call.Input)), nil)
	if text := d.Judgement.Differs(call.Input); text != "" {
		text, n := visible.Escape(text, nil)
		shown += "\nThis is what will run:\n" + text
		invisible += n
	}
	if invisible > 0 {
		shown += fmt.Sprintf("\n(%d invisible characters are written as <U+…>)", invisible)
	}
	reason, _ := visible.Escape(d.Reason, nil)
	if c := confinement(d); c != "" {
		reason += "; " + c
	}
	if n := len(shown) + len(reason); n > maxQuestion {
		return nil, fmt.Errorf("the question would have %d bytes, and the limit is %d; make a smaller call, or have the server's owner allow it by a rule", n, maxQuestion)
	}
	properties := object{}
	if rules := ruleTexts(d.Suggest); mayRemember && len(rules) > 0 {
		properties["remember"] = object{
			"type": "boolean", "default": false, "title": "Do not ask again in this session",
			"description": "adds the rule " + strings.Join(rules, ", "),
		}
	}
	return object{
		"mode":            "form",
		"message":         fmt.Sprintf("Allow %s?\n%s\n(%s)", call.Tool, shown, reason),
		"requestedSchema": object{"type": "object", "properties": properties},
	}, nil
}

// confinement says how a sandbox confines the call; "" if the tool has no sandbox.
func confinement(d permission.Decision) string {
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
