package inspect

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
)

// cause says why the provider's cache did not have all of the previous request, "" if it had. cacheable is how many
// tokens could have been cached, and caches whether the provider has reported any cached token.
func cause(p *pending, caches bool, cacheable int) string {
	r, prev := p.request, p.interim.prev
	i := firstDifference(p.before, p.after)
	idle := r.Start.Sub(prev.Start)
	switch {
	case prev.Model != r.Model && prev.Model != "":
		return fmt.Sprintf("another model answered: %s after %s", r.Model, prev.Model)
	case i < len(p.before):
		return partChange(p, i)
	case r.Usage.Cached*10 >= cacheable*9: // providers cache whole blocks, so the end may be missing
		return ""
	case !caches:
		return "the provider has reported no cached token in this session"
	case cacheable < smallest:
		return fmt.Sprintf("the request before was shorter than the %d tokens that providers cache", smallest)
	case idle > expiry:
		return fmt.Sprintf("the cache had expired: the request before was %v ago", idle.Round(time.Second))
	}
	return "the provider did not have it, though the beginning is the same"
}

// partChange says how the agent changed the conversation at part i, the first that differs from the previous request.
func partChange(p *pending, i int) string {
	before, after := p.before, p.after
	if i == len(after) {
		return "the end of the conversation was removed: " + count(len(before)-i, "part")
	}
	a, b := before[i], after[i]
	switch {
	case a.Kind == "tool" || b.Kind == "tool":
		return toolListChange(before, after)
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
	return messageChange(before, after, i)
}

// toolListChange says how the list of tools was changed.
func toolListChange(before, after []event.Part) string {
	old, now := toolsOf(before), toolsOf(after)
	changes := toolChanges(old, now)
	instructions := func(parts []event.Part) (digest string) {
		for _, p := range parts {
			if p.Kind == "system" {
				digest = p.Digest
			}
		}
		return digest
	}
	isLate := func(p event.Part) bool { return p.Kind == "change" } // tells the model of tools after the list
	all := strings.Join(changes, " ")
	var added, removed, redefined int
	for _, c := range changes {
		switch c[0] {
		case '+':
			added++
		case '-':
			removed++
		case '~':
			redefined++
		}
	}
	switch {
	case len(changes) == 0:
		return "the tools were listed in another order"
	case instructions(before) != instructions(after) && removed == len(old):
		return "another agent has the conversation: its tools and instructions are different"
	case slices.ContainsFunc(before, isLate) && !slices.ContainsFunc(after, isLate):
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

// messageChange says how the messages from part i on were changed.
func messageChange(before, after []event.Part, i int) string {
	a, b := before[i], after[i]
	number := i - len(toolsOf(before)) // from 1: the instructions are between the tools and the messages
	which := fmt.Sprintf("message %d (%s)", number, a.Name)
	hasPrefix := func(list, prefix []event.Part) bool {
		return len(prefix) > 0 && firstDifference(list, prefix) == len(prefix)
	}
	rest := before[i+1:]
	isEdited := a.Name == b.Name && (len(rest) == 0 || hasPrefix(after[i+1:], rest))
	switch {
	case a.Kind == "change" || b.Kind == "change":
		return "what the model was told of tools late was changed: " + strings.TrimSpace(a.Name+" "+b.Name)
	case b.Name == "hint" && hasPrefix(after[i+1:], before[i:]):
		return "a reminder of the program was inserted before " + which
	case a.Name == "hint":
		return "a reminder of the program was changed or removed: " + which
	case hasPrefix(after[i+1:], before[i:]):
		return "a message was inserted before " + which
	case hasPrefix(after[i:], rest):
		return which + " was removed"
	case a.Name == b.Name && b.Data < a.Data:
		return "an image or file was replaced by a note: " + which
	case isEdited && a.Name == "tool" && b.Bytes < a.Bytes:
		return "an old result was cut: " + which
	case isEdited:
		return which + " was edited"
	case number == 1:
		return "the conversation was replaced"
	}
	return "the conversation was rewritten from " + which + " on"
}

// firstDifference returns the index of the first part that differs, or is only in one of a and b.
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
func toolChanges(old, now []event.Part) (changes []string) {
	index := func(list []event.Part, name string) int {
		return slices.IndexFunc(list, func(p event.Part) bool { return p.Name == name })
	}
	for _, p := range old {
		if i := index(now, p.Name); i < 0 {
			changes = append(changes, "-"+p.Name)
		} else if now[i] != p {
			changes = append(changes, "~"+p.Name)
		}
	}
	for _, p := range now {
		if index(old, p.Name) < 0 {
			changes = append(changes, "+"+p.Name)
		}
	}
	return changes
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
