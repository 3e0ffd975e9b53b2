package toolkit_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/groupcase"
	"github.com/kitbag-go/kitbag/toolkit"
)

// checks maps each member of an expectation to a function that compares it with what the step did and
// returns the difference.
var checks = map[string]func(w *fixture, out outcome, want json.RawMessage) string{
	"ok":          func(_ *fixture, o outcome, want json.RawMessage) string { return groupcase.Same(o.err == nil, want) },
	"error":       func(w *fixture, o outcome, want json.RawMessage) string { return checkError(w, o.err, want) },
	"changed":     func(_ *fixture, o outcome, want json.RawMessage) string { return groupcase.Same(o.changed > 0, want) },
	"notify":      func(w *fixture, _ outcome, want json.RawMessage) string { return groupcase.Same(w.listChanges(), want) },
	"value":       func(_ *fixture, o outcome, want json.RawMessage) string { return groupcase.Same(o.value, want) },
	"hooks":       func(w *fixture, _ outcome, want json.RawMessage) string { return groupcase.Same(w.ran, want) },
	"state":       func(w *fixture, _ outcome, want json.RawMessage) string { return groupcase.Same(w.scope.Phase(), want) },
	"unknown":     func(_ *fixture, o outcome, want json.RawMessage) string { return groupcase.Same(o.unknown, want) },
	"next_cursor": func(w *fixture, _ outcome, want json.RawMessage) string { return checkCursor(w, want) },

	"changed_true_count": func(_ *fixture, o outcome, want json.RawMessage) string { return groupcase.Same(o.changed, want) },

	"active": func(w *fixture, _ outcome, want json.RawMessage) string {
		return groupcase.Same(sorted(w.active()), mustJSON(sorted(strsOf(want))))
	},
	"group": func(w *fixture, _ outcome, want json.RawMessage) string {
		return groupcase.Same(w.scope.Ceiling(), want)
	},

	"visible": func(_ *fixture, o outcome, want json.RawMessage) string {
		return groupcase.Same(orEmpty(o.visible), want)
	},
	"available": func(w *fixture, _ outcome, want json.RawMessage) string {
		return groupcase.Same(sorted(w.visible()), want)
	},
	"tools": func(w *fixture, _ outcome, want json.RawMessage) string {
		return groupcase.Same(sorted(w.visible()), want)
	},
	"visible_unordered": func(w *fixture, _ outcome, want json.RawMessage) string {
		return groupcase.Same(sorted(w.visible()), mustJSON(sorted(strsOf(want))))
	},
	"visible_includes": func(_ *fixture, o outcome, want json.RawMessage) string {
		return includes(o.visible, strsOf(want), true)
	},
	"visible_excludes": func(_ *fixture, o outcome, want json.RawMessage) string {
		return includes(o.visible, strsOf(want), false)
	},

	"groups":       func(_ *fixture, o outcome, want json.RawMessage) string { return groupcase.Same(o.groups, want) },
	"groups_names": func(_ *fixture, o outcome, want json.RawMessage) string { return groupcase.Same(o.names, want) },
	"meta":         func(w *fixture, _ outcome, want json.RawMessage) string { return checkMeta(w, want) },
	"capabilities_include": func(w *fixture, _ outcome, want json.RawMessage) string {
		return groupcase.Same(w.capabilities(), want)
	},
	"capabilities_exclude": func(w *fixture, _ outcome, want json.RawMessage) string {
		for _, c := range strsOf(want) {
			if _, ok := w.capabilities()[c]; ok {
				return "unexpected capability " + c
			}
		}
		return ""
	},

	"result": func(_ *fixture, o outcome, want json.RawMessage) string {
		return groupcase.Result(o.result, want, true)
	},
	"result_subset": func(_ *fixture, o outcome, want json.RawMessage) string {
		return groupcase.Result(o.result, want, false)
	},
	"text": func(_ *fixture, o outcome, want json.RawMessage) string { return groupcase.Same(o.text, want) },
	"text_contains": func(_ *fixture, o outcome, want json.RawMessage) string {
		return contains(o.text, strsOf(want), true)
	},
	"text_excludes": func(_ *fixture, o outcome, want json.RawMessage) string {
		return contains(o.text, strsOf(want), false)
	},
	"observation_prefix": func(_ *fixture, o outcome, _ json.RawMessage) string {
		// TrustGraph marks a failure with a prefix; we use a failed result.
		return groupcase.Same(o.failed, json.RawMessage("true"))
	},
	"description_contains": func(_ *fixture, o outcome, want json.RawMessage) string {
		return describes(o.text, translated(strsOf(want)))
	},
	"description_excludes": func(_ *fixture, o outcome, want json.RawMessage) string {
		return contains(o.text, strsOf(want), false)
	},
	"descriptions": func(w *fixture, _ outcome, want json.RawMessage) string { return checkDescriptions(w, want) },

	"notify_methods": func(w *fixture, _ outcome, want json.RawMessage) string { return groupcase.Same(w.methods(), want) },
	"client_notified": func(w *fixture, _ outcome, want json.RawMessage) string {
		// Clients ignore servers that do not declare listChanged.
		if declared := w.sc.Config.ListChanged; declared != nil && !*declared {
			return groupcase.Same(0, want)
		}
		return groupcase.Same(len(w.changes), want)
	},
}

func mustJSON(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

func orEmpty(s []string) []string { return append([]string{}, s...) }

func includes(all, some []string, want bool) string {
	for _, s := range some {
		if slices.Contains(all, s) != want {
			return fmt.Sprintf("%q in %q: want %v", s, all, want)
		}
	}
	return ""
}

func contains(text string, parts []string, want bool) string {
	for _, p := range parts {
		if strings.Contains(text, p) != want {
			return fmt.Sprintf("%q in %q: want %v", p, text, want)
		}
	}
	return ""
}

// describes is like contains, for descriptions: a part that our texts word differently must
// at least have its numbers in one line.
func describes(text string, parts []string) string {
	for _, p := range parts {
		numbers := regexp.MustCompile(`\d+`).FindAllString(p, -1)
		if len(numbers) == 0 || strings.HasPrefix(strings.TrimSpace(p), "- ") {
			if d := contains(text, []string{p}, true); d != "" {
				return d
			}
			continue
		}
		if !slices.ContainsFunc(strings.Split(text, "\n"), func(line string) bool { return contains(line, numbers, true) == "" }) {
			return fmt.Sprintf("no line of %q has the numbers of %q", text, p)
		}
	}
	return ""
}

// translated replaces phrases of wags' descriptions with ours.
func translated(parts []string) []string {
	out := slices.Clone(parts)
	for i, p := range parts {
		switch p {
		case "Currently enabled:":
			out[i] = "Enabled now:"
		case "No groups currently enabled.":
			out[i] = "No group is enabled."
		}
	}
	return out
}

// kinds returns the scenarios' names for an error of ours.
func kinds(err error) []string {
	if he, ok := errors.AsType[*toolkit.HiddenError](err); ok {
		if len(he.Groups) > 0 {
			return []string{"tool_unavailable", "group_inactive", "tool_not_found"}
		}
		return []string{"tool_unavailable", "tool_not_found", "invalid_params"}
	}
	if ge, ok := errors.AsType[*toolkit.GroupError](err); ok {
		switch ge.Reason {
		case toolkit.ReasonUnknownGroup:
			return []string{"unknown_group"}
		case toolkit.ReasonParentClosed:
			return []string{"parent_inactive"}
		case toolkit.ReasonHookFailed:
			return []string{"hook_failed"}
		}
		return []string{"invalid_argument"}
	}
	if errors.Is(err, toolkit.ErrCursor) {
		return []string{"invalid_params"}
	}
	if errors.Is(err, errNoMethod) {
		return []string{"method_not_found"}
	}
	return []string{"invalid_config", "duplicate", "unknown_group", "invalid_argument"}
}

func checkError(w *fixture, err error, want json.RawMessage) string {
	var e struct {
		Kind, Message, Raw string
		Contains           any `json:"message_contains"`
	}
	if json.Unmarshal(want, &e) != nil {
		return "cannot decode " + string(want)
	}
	if err == nil {
		return "there was no error"
	}
	if !slices.Contains(kinds(err), e.Kind) {
		return fmt.Sprintf("got %T %q, want %s", err, err, e.Kind)
	}
	texts := []string{e.Message, e.Raw}
	switch c := e.Contains.(type) {
	case string:
		texts = append(texts, c)
	case []any:
		for _, s := range c {
			texts = append(texts, fmt.Sprint(s))
		}
	}
	for _, text := range texts {
		if text == "" {
			continue
		}
		if he, ok := errors.AsType[*toolkit.HiddenError](err); ok {
			if got := w.hidden(he); got != text {
				return fmt.Sprintf("got %q (%v), want %q", got, err, text)
			}
			continue
		}
		if ge, ok := errors.AsType[*toolkit.GroupError](err); ok {
			err = ge // without what a control adds
		}
		if !groupcase.Says(text, err.Error()) {
			return fmt.Sprintf("got %q, want our equivalent of %q", err, text)
		}
	}
	return ""
}

func checkMeta(w *fixture, want json.RawMessage) string {
	var m map[string]map[string][]string
	if json.Unmarshal(want, &m) != nil {
		return "cannot decode " + string(want)
	}
	for name, meta := range m {
		labels := w.tk.Labels(name)
		if !slices.Contains(w.visible(), name) {
			return fmt.Sprintf("%s is not listed", name)
		}
		if d := groupcase.Same(labels, mustJSON(meta["io.modelcontextprotocol/groups"])); d != "" {
			return name + ": " + d
		}
	}
	return ""
}

func checkDescriptions(w *fixture, want json.RawMessage) string {
	var m map[string]*string
	if json.Unmarshal(want, &m) != nil {
		return "cannot decode " + string(want)
	}
	got := map[string]*string{}
	for _, i := range w.view().Tools() {
		if _, ok := m[i.Name]; ok {
			got[i.Name] = nil
			if i.Description != "" {
				got[i.Name] = &i.Description
			}
		}
	}
	return groupcase.Same(got, want)
}

func checkCursor(w *fixture, want json.RawMessage) string {
	if string(want) == "null" {
		return groupcase.Same(w.cursor, json.RawMessage(`""`))
	}
	return groupcase.Same(w.cursor != "", want)
}
