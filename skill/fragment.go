package skill

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/visible"
)

// DefaultBudget is the size in bytes up to which [Fragment] lists descriptions.
const DefaultBudget = 12_000

//go:embed prompts/fragment.txt
var fragmentIntro string

// Fragment is the part of a system prompt that lists the skills: name and description of each, sorted by name,
// escaped so that no description can look like another part of the prompt. It is "" without skills.
//
// It has at most budget bytes; 0 means [DefaultBudget]. If the descriptions do not fit, it lists only the names
// and explains how to search; if the names do not fit either, it lists as many as do. The introduction and the
// search hint are included even if they exceed the budget.
func Fragment(skills []*Skill, budget int) string {
	if len(skills) == 0 {
		return ""
	}
	if budget <= 0 {
		budget = DefaultBudget
	}
	sorted := slices.Clone(skills)
	slices.SortStableFunc(sorted, func(a, b *Skill) int { return cmp.Compare(a.Name, b.Name) })
	var full strings.Builder
	full.WriteString("<skills>\n" + fragmentIntro)
	for _, s := range sorted {
		fmt.Fprintf(&full, "<skill name=\"%s\"%s>%s</skill>\n", escape(s.Name), originAttribute(s), escape(s.Description))
		if full.Len() > budget {
			return fragmentNames(sorted, budget)
		}
	}
	full.WriteString("</skills>\n")
	if full.Len() > budget {
		return fragmentNames(sorted, budget)
	}
	return full.String()
}

// fragmentNames lists only names. It reserves room for the line that says how many names are missing, so that a model does
// not take a part of the list for the whole.
func fragmentNames(sorted []*Skill, budget int) string {
	hint := fmt.Sprintf("There are %d skills, too many to describe here. Call the Skill tool with a name, or with a few words of the task to search their names and descriptions.\n", len(sorted))
	const end = "</skills>\n"
	var b strings.Builder
	b.WriteString("<skills>\n" + fragmentIntro + hint)
	for i, s := range sorted {
		line := escape(s.Name) + "\n"
		missing := fmt.Sprintf("and %d more\n", len(sorted)-i)
		if room := budget - b.Len() - len(end); len(line) > room || i+1 < len(sorted) && len(line)+len(missing) > room {
			if len(missing) <= room {
				b.WriteString(missing)
			}
			break
		}
		b.WriteString(line)
	}
	b.WriteString(end)
	return b.String()
}

//go:embed prompts/reminder.txt
var reminderIntro string

// Reminder lists the skills that a model opened before the conversation was summarised:
// name, description and outline of each, of which a long one is cut. It is "" without skills.
func Reminder(opened []*Skill) string {
	if len(opened) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("<opened-skills>\n" + reminderIntro)
	for _, s := range opened {
		fmt.Fprintf(&b, "<skill name=\"%s\"%s>%s\n", escape(s.Name), originAttribute(s), escape(s.Description))
		for line := range strings.Lines(shortOutline(s.Document().Sections, maxOutline, "")) {
			text := strings.TrimLeft(line, " ")
			b.WriteString(line[:len(line)-len(text)] + escape(text) + "\n")
		}
		b.WriteString("</skill>\n")
	}
	b.WriteString("</opened-skills>\n")
	return b.String()
}

// originAttribute returns the attribute that marks a remote skill.
func originAttribute(s *Skill) string {
	if s.Origin == "" {
		return ""
	}
	return fmt.Sprintf(" from=\"%s\"", escape(s.Origin))
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")

// escape escapes markup, joins lines, and removes invisible characters, which could hide text from a reviewer.
func escape(text string) string { return escaper.Replace(visible.Text(oneLine(text))) }
