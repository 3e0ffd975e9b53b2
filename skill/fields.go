package skill

import (
	"iter"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"golang.org/x/text/unicode/norm"

	"github.com/kitbag-go/kitbag/internal/near"
)

// Limits of the specification, in characters.
const (
	maxName          = 64
	maxDescription   = 1024
	maxCompatibility = 500
)

// fieldNames are the fields of the specification.
var fieldNames = []string{"name", "description", "license", "compatibility", "metadata", "allowed-tools"}

// readFields copies the fields of the front matter into s and returns the line of
// each field. offset is the number of lines before the front matter.
func readFields(r *report, s *Skill, header *yaml.Node, offset int) map[string]int {
	reportDuplicates(r, header, offset)
	lines := map[string]int{}
	for key, value := range pairs(header) {
		name, line := key.Value, key.Line+offset
		lines[name] = line
		switch name {
		case "name":
			// NFKC as in the specification's reference implementation: a file system may have decomposed the name.
			s.Name = norm.NFKC.String(readText(r, name, value, line))
		case "description":
			s.Description = readText(r, name, value, line)
		case "license":
			s.License = readText(r, name, value, line)
		case "compatibility":
			s.Compatibility = readText(r, name, value, line)
		case "metadata":
			s.Metadata = readMetadata(r, value, offset, line)
		case "allowed-tools":
			s.AllowedTools = readTools(r, value, offset, line)
		default:
			hint := ""
			if meant := near.Names(name, fieldNames, 1); len(meant) > 0 {
				hint = "; did you mean " + meant[0] + "?"
			}
			r.warn("unknown-field", line, "the specification has no field %s: put your own under metadata%s", quote(name), hint)
		}
	}
	return lines
}

// pairs yields the keys and values of a mapping, of a duplicate key only the first value.
func pairs(m *yaml.Node) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(key, value *yaml.Node) bool) {
		seen := map[string]bool{}
		for i := 0; i+1 < len(m.Content); i += 2 {
			key := resolve(m.Content[i])
			if !seen[key.Value] && !yield(key, resolve(m.Content[i+1])) {
				return
			}
			seen[key.Value] = true
		}
	}
}

// reportDuplicates reports the duplicate keys of all mappings in n, which yaml.Load accepts when it decodes to nodes. The
// specification's reference implementation refuses the file.
func reportDuplicates(r *report, n *yaml.Node, offset int) {
	seen := map[string]bool{}
	for i, c := range n.Content {
		if isKey := n.Kind == yaml.MappingNode && i%2 == 0; isKey {
			name := resolve(c).Value
			if seen[name] {
				r.nonfatal("duplicate-field", c.Line+offset, "duplicate field %s, the first one is used; remove the others", quote(name))
			}
			seen[name] = true
		}
		reportDuplicates(r, c, offset)
	}
}

// resolve follows an alias; checkAliases has refused cycles.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// scalar returns a scalar as text. A scalar that is not a string in YAML (a number, a date) is returned as written. ok is
// false for a list or a mapping.
func scalar(n *yaml.Node) (text string, isString, ok bool) {
	if n.Kind != yaml.ScalarNode {
		return "", false, false
	}
	switch n.ShortTag() {
	case "!!null":
		return "", true, true
	case "!!str":
		return n.Value, true, true
	}
	return n.Value, false, true
}

// readText reads a text field. A number is kept as written, since 1.10 is not 1.1.
func readText(r *report, field string, n *yaml.Node, line int) string {
	text, isString, ok := scalar(n)
	switch {
	case !ok:
		r.nonfatal("field-type", line, "%s has to be text, not a list or a mapping: put it between double quotes", field)
	case !isString:
		r.warn("field-type", line, "%s is not a YAML string and it was read as %s: put it between double quotes", field, quote(text))
	}
	return strings.TrimSpace(text)
}

// readMetadata reads a map of text to text. It skips the nested lists that many skills
// have, which the specification does not allow.
func readMetadata(r *report, n *yaml.Node, offset, line int) map[string]string {
	if n.Kind != yaml.MappingNode {
		if text, _, ok := scalar(n); !ok || text != "" {
			r.nonfatal("metadata-type", line, "metadata has to be a mapping of text to text, such as author: someone on an indented line below")
		}
		return nil
	}
	out := map[string]string{}
	for key, value := range pairs(n) {
		at := key.Line + offset
		text, isString, ok := scalar(value)
		if !ok || key.Kind != yaml.ScalarNode {
			r.nonfatal("metadata-type", at, "the values of metadata have to be text; %s is not and is left out", quote(key.Value))
			continue
		}
		if !isString {
			r.warn("metadata-type", at, "metadata.%s is not a YAML string and it was read as %s: put it between double quotes", key.Value, quote(text))
		}
		out[key.Value] = text
	}
	return out
}

// readTools reads allowed-tools: text separated by spaces in the specification, also
// commas and lists in other agents.
func readTools(r *report, n *yaml.Node, offset, line int) []string {
	if text, _, ok := scalar(n); ok {
		tools, ok := splitTools(text)
		if !ok {
			r.nonfatal("allowed-tools", line, "a parenthesis in allowed-tools is not closed, so the last rule is ignored: write Tool or Tool(pattern)")
		}
		return tools
	}
	if n.Kind != yaml.SequenceNode {
		r.nonfatal("allowed-tools", line, "allowed-tools has to be text such as Read Bash(git:*), or a list of it")
		return nil
	}
	var tools []string
	for _, item := range n.Content {
		item = resolve(item)
		text, _, ok := scalar(item)
		rules, closed := splitTools(text)
		if !ok || !closed {
			r.nonfatal("allowed-tools", item.Line+offset, "an entry of allowed-tools is ignored: write Tool or Tool(pattern)")
		}
		tools = append(tools, rules...)
	}
	return tools
}

// splitTools cuts a list of rules at spaces and commas outside of parentheses.
// ok is false when a parenthesis is not closed; that rule is dropped.
func splitTools(text string) (rules []string, ok bool) {
	depth, start := 0, -1
	for i, c := range text {
		switch {
		case c == '(':
			depth++
		case c == ')' && depth > 0:
			depth--
		case depth == 0 && (c == ',' || unicode.IsSpace(c)):
			if start >= 0 {
				rules = append(rules, text[start:i])
			}
			start = -1
			continue
		}
		if start < 0 {
			start = i
		}
	}
	if start >= 0 && depth == 0 {
		rules = append(rules, text[start:])
	}
	return rules, depth == 0
}

// checkFields applies the rules of the specification to the values. lines has the line of each field in the file.
func checkFields(r *report, s *Skill, folder string, lines map[string]int) {
	checkName(r, s, folder, lines["name"])
	checkDescription(r, s, lines["description"])
	if line, given := lines["compatibility"]; given || s.Compatibility != "" { // a skill of Memory has no lines
		switch n := utf8.RuneCountInString(s.Compatibility); {
		case n == 0:
			r.nonfatal("compatibility-length", line, "compatibility is empty; leave the field out")
		case n > maxCompatibility:
			r.nonfatal("compatibility-length", line, "compatibility has %d characters, more than %d", n, maxCompatibility)
		}
	}
}

// checkName checks the name. A skill without a name gets the folder's, as in other agents: some collections name no skill.
func checkName(r *report, s *Skill, folder string, line int) {
	if s.Name == "" {
		if folder == "" {
			r.fatal("name-missing", line, "the skill has no name; add name: with 1 to %d lowercase letters, digits and hyphens", maxName)
			return
		}
		r.nonfatal("name-missing", line, "the skill has no name, so its folder's is used; add name: %s", folder)
		s.Name = folder
		return
	}
	if n := utf8.RuneCountInString(s.Name); n > maxName {
		r.nonfatal("name-length", line, "the name has %d characters, more than %d", n, maxName)
	}
	if bad := strings.IndexFunc(s.Name, notInName); bad >= 0 {
		c, _ := utf8.DecodeRuneInString(s.Name[bad:])
		r.nonfatal("name-characters", line, "the name %s contains %q; only lowercase letters, digits and hyphens are allowed", quote(s.Name), c)
	} else if strings.ContainsFunc(s.Name, func(c rune) bool { return c > unicode.MaxASCII }) {
		r.warn("name-ascii", line, "the name %s is not ASCII; some programs accept only a-z, 0-9 and hyphens", quote(s.Name))
	}
	if strings.HasPrefix(s.Name, "-") || strings.HasSuffix(s.Name, "-") || strings.Contains(s.Name, "--") {
		r.nonfatal("name-hyphens", line, "the name %s must not begin or end with a hyphen or contain two in a row", quote(s.Name))
	}
	if folder != "" && norm.NFKC.String(folder) != s.Name {
		r.nonfatal("name-folder", line, "the name %s has to be the same as the folder's, which is %s", quote(s.Name), quote(folder))
	}
}

// notInName reports whether a name must not contain c. Like the specification's reference implementation it allows the
// lowercase letters of every script.
func notInName(c rune) bool {
	if c == '-' || unicode.IsDigit(c) {
		return false
	}
	return !unicode.IsLetter(c) || unicode.ToLower(c) != c
}

// whenWords are English words of descriptions that say when to use a skill.
var whenWords = strings.Fields(`when whenever if before after while during use used useful ask asks asked need needs
	needed want wants trigger triggers invoke`)

func saysWhen(description string) bool {
	words := strings.FieldsFunc(strings.ToLower(description), func(c rune) bool { return !unicode.IsLetter(c) })
	return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(whenWords, w) })
}

// checkDescription only requires a description, by which a model chooses the skill.
// Whether it says when to use the skill is checked in English only.
func checkDescription(r *report, s *Skill, line int) {
	n := utf8.RuneCountInString(s.Description)
	switch {
	case n == 0:
		r.fatal("description-missing", line, "the skill has no description, which a model needs to choose it; add description: with what it does and when to use it")
		return
	case n > maxDescription:
		r.nonfatal("description-length", line, "the description has %d characters, more than %d; move details to the body", n, maxDescription)
	}
	notEnglish := func(c rune) bool { return c > unicode.MaxLatin1 && unicode.IsLetter(c) }
	if !saysWhen(s.Description) && !strings.ContainsFunc(s.Description, notEnglish) {
		r.warn("description-when", line, "the description does not say when to use the skill; add a sentence that begins with Use when")
	}
}
