package inspect

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
)

// cause says why a provider's cache had less of a request than of the one before, "" if it had all. Could is how
// many tokens it could have had.
func cause(p *pending, r *request, caches bool, could int) string {
	prev := p.interim.prev
	i := firstDifference(p.before, p.after)
	idle := r.Start.Sub(prev.Start)
	switch {
	case prev.Model != r.Model && prev.Model != "":
		return fmt.Sprintf("another model answered: %s after %s", r.Model, prev.Model)
	case i < len(p.before):
		return changed(p, i)
	case r.Usage.Cached*10 >= could*9: // providers cache in blocks
		return ""
	case !caches:
		return "the provider has reported no cached token in this session"
	case could < smallest:
		return fmt.Sprintf("the request before was shorter than the %d tokens that providers cache", smallest)
	case idle > expiry:
		return fmt.Sprintf("the cache had expired: the request before was %v ago", idle.Round(time.Second))
	}
	return "the provider did not have it, though the beginning is the same"
}

// changed names what the agent changed at part i.
func changed(p *pending, i int) string {
	before, after := p.before, p.after
	if i == len(after) {
		return "the end of the conversation was removed: " + count(len(before)-i, "part")
	}
	a, b := before[i], after[i]
	switch {
	case a.Kind == "tool" || b.Kind == "tool":
		return toolsChanged(before, after)
	case a.Kind == "system" || b.Kind == "system":
		return "the instructions were changed"
	}
	if c := p.interim.compaction; c != nil {
		switch {
		case c.Failed != "":
			return fmt.Sprintf("compaction: %s dropped without a summary", count(c.Dropped, "message"))
		case c.Summary == "":
			return "compaction: old results were cut"
		}
		return fmt.Sprintf("compaction: a summary replaced %s", count(c.Dropped, "message"))
	}
	return messagesChanged(before, after, i)
}

// toolsChanged names what happened to the list of tools.
func toolsChanged(before, after []event.Part) string {
	old, now := toolsOf(before), toolsOf(after)
	list := toolChanges(old, now)
	system := func(parts []event.Part) (digest string) {
		for _, p := range parts {
			if p.Kind == "system" {
				digest = p.Digest
			}
		}
		return digest
	}
	late := func(p event.Part) bool { return p.Kind == "change" }
	all := strings.Join(list, " ")
	var added, removed, redefined int
	for _, c := range list {
		switch c[0] {
		case '+':
			added++
		case '-':
			removed++
		default:
			redefined++
		}
	}
	switch {
	case len(list) == 0:
		return "the tools were listed in another order"
	case system(before) != system(after) && removed == len(old):
		return "another agent has the conversation: its tools and instructions are different"
	case slices.ContainsFunc(before, late) && !slices.ContainsFunc(after, late):
		return "the tools that were shown late are in the list now: " + all
	case redefined > 0 && added+removed == 0:
		return "the definition of a tool was changed: " + all
	case removed == 0 && redefined == 0:
		return "tools were added: " + all
	case added == 0 && redefined == 0:
		return "tools were removed: " + all
	}
	return "the list of tools was changed: " + all
}

// messagesChanged names what happened to the messages from part i on.
func messagesChanged(before, after []event.Part, i int) string {
	a, b := before[i], after[i]
	which := fmt.Sprintf("message %d (%s)", i+1-len(toolsOf(before))-1, a.Name)
	begins := func(list, with []event.Part) bool {
		return len(with) > 0 && len(list) >= len(with) && firstDifference(list, with) == len(with)
	}
	rest := before[i+1:]
	switch {
	case a.Kind == "change" || b.Kind == "change":
		return "what the model was told of tools late was changed: " + strings.TrimSpace(a.Name+" "+b.Name)
	case b.Name == "hint" && begins(after[i+1:], before[i:]):
		return "a reminder of the program was inserted before " + which
	case a.Name == "hint":
		return "a reminder of the program was changed or removed: " + which
	case begins(after[i+1:], before[i:]):
		return "a message was inserted before " + which
	case begins(after[i:], rest):
		return which + " was removed"
	case a.Name == b.Name && b.Data < a.Data:
		return "an image or file was replaced by a note: " + which
	case a.Name == b.Name && (len(rest) == 0 || begins(after[i+1:], rest)) && a.Name == "tool" && b.Bytes < a.Bytes:
		return "an old result was cut: " + which
	case a.Name == b.Name && (len(rest) == 0 || begins(after[i+1:], rest)):
		return which + " was edited"
	case i == len(toolsOf(before))+1:
		return "the conversation was replaced"
	}
	return "the conversation was rewritten from " + which + " on"
}

// firstDifference returns the index of the first part that differs.
func firstDifference(a, b []event.Part) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// toolsOf returns the list of tools at the beginning of a request.
func toolsOf(parts []event.Part) []event.Part {
	n := slices.IndexFunc(parts, func(p event.Part) bool { return p.Kind != "tool" })
	if n < 0 {
		n = len(parts)
	}
	return parts[:n]
}

// toolChanges lists the tools that were removed (-), redefined (~) and added (+).
func toolChanges(old, now []event.Part) (out []string) {
	find := func(list []event.Part, name string) int {
		return slices.IndexFunc(list, func(p event.Part) bool { return p.Name == name })
	}
	for _, p := range old {
		if i := find(now, p.Name); i < 0 {
			out = append(out, "-"+p.Name)
		} else if now[i] != p {
			out = append(out, "~"+p.Name)
		}
	}
	for _, p := range now {
		if find(old, p.Name) < 0 {
			out = append(out, "+"+p.Name)
		}
	}
	return out
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
