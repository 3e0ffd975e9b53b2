package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/skill"
)

func skillsCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "skills",
		Short: "Manage skills",
		Long: `List, show and check the skills below folders: by default .agents/skills and
.claude/skills, or the current folder if neither exists.`,
		Example: "  kitbag skills list\n  kitbag skills new release-notes .agents/skills",
	}, skillsListCommand(), skillsShowCommand(), skillsValidateCommand(), skillsNewCommand())
}

// orDefaultFolders returns args. Without args it returns the default skill folders that exist, or else the current folder.
func orDefaultFolders(args []string) []string {
	if len(args) > 0 {
		return args
	}
	for _, d := range defaultSkillFolders {
		if _, err := existingDir(d); err == nil {
			args = append(args, d)
		}
	}
	if len(args) == 0 {
		return []string{"."}
	}
	return args
}

// skillFolders returns the folders to search for skills, which must exist. An argument may also be a file SKILL.md.
func skillFolders(args []string) ([]string, error) {
	folders := slices.Clone(orDefaultFolders(args))
	for i, d := range folders {
		info, err := os.Stat(d)
		switch {
		case d == "":
			return nil, usage("search for skills: the name of the folder is empty; leave the name out for the default folders")
		case err != nil:
			return nil, fmt.Errorf("search for skills: %w; name a folder that exists", err)
		case info.IsDir():
		case strings.EqualFold(filepath.Base(d), "SKILL.md"):
			folders[i] = filepath.Dir(d)
		default:
			return nil, usage("search for skills: %s is not a folder", d)
		}
	}
	return folders, nil
}

// loadSkills loads all skills below the folders. If several skills have the same name, it loads the first.
func loadSkills(ctx context.Context, args []string) ([]*skill.Skill, []skill.Diagnostic, error) {
	folders, err := skillFolders(args)
	if err != nil {
		return nil, nil, err
	}
	var loaders []skill.Loader
	for _, d := range folders {
		loaders = append(loaders, skill.Under(d))
	}
	return skill.Merge(loaders...).Load(ctx)
}

// The output of "skills list --json". Its form must not change, since other programs read it.
type (
	skillEntry struct {
		Name        string `json:"name"`
		Description string `json:"description"`
		Path        string `json:"path"`
		Bytes       int    `json:"bytes"` // the size of SKILL.md
		Sections    int    `json:"sections"`
	}
	skippedSkill struct {
		Path   string `json:"path,omitempty"` // "" if the folder could not be searched; Reason names it
		Reason string `json:"reason"`
	}
	skillList struct {
		Skills  []skillEntry   `json:"skills"`
		Skipped []skippedSkill `json:"skipped"`
	}
)

func skillsListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list [flags] [DIRECTORY...]",
		Short:   "List the skills, including those that cannot be used",
		Example: "  kitbag skills list\n  kitbag skills list --json docs/skills",
		RunE: func(cmd *cobra.Command, args []string) error {
			skills, diagnostics, err := loadSkills(cmd.Context(), args)
			if err != nil {
				return err
			}
			list := listSkills(skills, diagnostics)
			if len(list.Skills)+len(list.Skipped) == 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "no skills below %s; kitbag skills new NAME makes one\n", plain(strings.Join(orDefaultFolders(args), ", ")))
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), list)
			}
			list.print(cmd.OutOrStdout(), cmd.ErrOrStderr())
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// listSkills makes the list of loaded and skipped skills. A diagnostic about a skill that was loaded is left out.
func listSkills(skills []*skill.Skill, diagnostics []skill.Diagnostic) skillList {
	list := skillList{Skills: []skillEntry{}, Skipped: []skippedSkill{}}
	for _, s := range skills {
		list.Skills = append(list.Skills, skillEntry{s.Name, s.Description, s.Dir, s.Bytes, len(s.Document().Sections)})
	}
	for _, d := range diagnostics {
		if d.Fatal || d.Rule == "shadowed" {
			reason := d.Message
			if d.Line > 0 {
				reason = fmt.Sprintf("line %d: %s", d.Line, d.Message)
			}
			list.Skipped = append(list.Skipped, skippedSkill{folderOfSkill(d.File), reason})
		}
	}
	return list
}

// folderOfSkill returns the folder of a SKILL.md, or any other path unchanged.
func folderOfSkill(file string) string {
	if strings.EqualFold(filepath.Base(file), "SKILL.md") {
		return filepath.Dir(file)
	}
	return file
}

func (l skillList) print(out, log io.Writer) {
	width := 0
	for _, s := range l.Skills {
		width = max(width, utf8.RuneCountInString(shorten(s.Name, maxName)))
	}
	for _, s := range l.Skills {
		description := strings.Join(strings.Fields(s.Description), " ")
		fmt.Fprintf(out, "%-*s  %s\n", width, shorten(s.Name, maxName), plain(description))
	}
	for _, s := range l.Skipped {
		path := s.Path
		if path != "" {
			path = " " + path
		}
		fmt.Fprintf(log, "skipped%s: %s\n", plainLine(path), plainLine(s.Reason))
	}
}

func skillsShowCommand() *cobra.Command {
	var q skill.Query
	cmd := &cobra.Command{
		Use:   "show [flags] NAME [DIRECTORY...]",
		Short: "Print what a model reads of a skill",
		Example: `  kitbag skills show pdf
  kitbag skills show pdf --section forms
  kitbag skills show pdf --file references/forms.md`,
		Args: between(1, math.MaxInt, "the name of a skill"),
		RunE: func(cmd *cobra.Command, args []string) error {
			skills, diagnostics, err := loadSkills(cmd.Context(), args[1:])
			if err != nil {
				return err
			}
			found := func(s *skill.Skill) bool { return s.Name == args[0] }
			for _, s := range listSkills(skills, diagnostics).Skipped {
				if filepath.Base(s.Path) == args[0] && !slices.ContainsFunc(skills, found) {
					return fmt.Errorf("skill %s: %s", s.Path, s.Reason)
				}
			}
			if len(skills) == 0 {
				return fmt.Errorf("no skills below %s; give the directory that has them: kitbag skills show %s DIRECTORY", strings.Join(orDefaultFolders(args[1:]), ", "), args[0])
			}
			q.Skill = args[0]
			page, err := skill.View(cmd.Context(), skills, q)
			if err != nil {
				return err
			}
			if page.Data != nil { // not text, so it is for a file or another program
				_, err = cmd.OutOrStdout().Write(page.Data)
				return err
			}
			text := strings.TrimRight(page.Text, "\n")
			if isTerminal(cmd.OutOrStdout()) { // a file or another program gets exactly what the model reads
				text = plain(text)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
			return err
		},
	}
	cmd.Flags().StringVar(&q.Section, "section", "", "the anchor or title of one `SECTION`")
	cmd.Flags().StringVar(&q.File, "file", "", "one `FILE` of the skill")
	return cmd
}

func skillsValidateCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "validate [flags] [DIRECTORY...]",
		Short: "Check skills against the Agent Skills specification",
		Long: `Check skills against the Agent Skills specification. The exit code is 1 if a skill
breaks a rule; warnings do not count.`,
		Example: "  kitbag skills validate .agents/skills",
		RunE: func(cmd *cobra.Command, args []string) error {
			reports, err := validateSkills(cmd.Context(), args)
			if err != nil {
				return err
			}
			if asJSON {
				err = writeJSON(cmd.OutOrStdout(), map[string]any{"skills": reports})
			} else {
				printReports(cmd.OutOrStdout(), reports)
			}
			if err == nil && slices.ContainsFunc(reports, func(r skill.Report) bool { return !r.Valid }) {
				err = &exit{code: exitError}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// validateSkills returns a report of each skill below the folders. A folder without skills gets a report too,
// since it would otherwise look valid.
func validateSkills(ctx context.Context, args []string) ([]skill.Report, error) {
	folders, err := skillFolders(args)
	if err != nil {
		return nil, err
	}
	all := []skill.Report{}
	for _, d := range folders {
		reports, err := skill.Validate(ctx, skill.Under(d))
		if err == nil && len(reports) == 0 {
			reports, err = skill.Validate(ctx, skill.One(d)) // reports that there is no skill
		}
		if err != nil {
			return nil, err
		}
		all = append(all, reports...)
	}
	return all, nil
}

// printReports prints the diagnostics, one on each line, in the format of compilers, which editors understand.
func printReports(out io.Writer, reports []skill.Report) {
	valid := 0
	for _, r := range reports {
		for _, d := range r.Diagnostics {
			fmt.Fprintln(out, plainLine(d.String()))
		}
		if r.Valid {
			valid++
		}
	}
	fmt.Fprintf(out, "%d of %d skills are valid\n", valid, len(reports))
}

// writeJSON prints an indented JSON document.
func writeJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

//go:embed skill.md
var skillTemplate string

func skillsNewCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "new NAME [DIRECTORY]",
		Short:   "Make a skill from a template",
		Example: `  kitbag skills new release-notes .agents/skills`,
		Args:    between(1, 2, "the name of the skill, and its folder unless it is the current one"),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := newSkill(args[0], append(args[1:], ".")[0]) // in the current folder without DIRECTORY
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), file)
			return err
		},
	}
}

// newSkill makes DIR/NAME/SKILL.md and returns its path. It fails if DIR/NAME exists.
func newSkill(name, dir string) (string, error) {
	content := strings.ReplaceAll(skillTemplate, "{{name}}", name)
	s, diagnostics := skill.Parse("SKILL.md", []byte(content)) // checks the name
	for _, d := range diagnostics {
		if d.Severity == skill.SeverityError {
			return "", usage("make skill %q: %s", name, d.Message)
		}
	}
	if s.Name != name { // YAML reads the name as something else, such as a comment
		return "", usage("make skill %q: the name may contain only lowercase letters, digits and hyphens", name)
	}
	folder := filepath.Join(dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	// Unlike MkdirAll, Mkdir fails if the folder exists, so only one of two concurrent commands makes the skill.
	if err := os.Mkdir(folder, 0o755); errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("make skill %q: %s already exists", name, folder)
	} else if err != nil {
		return "", err
	}
	file := filepath.Join(folder, "SKILL.md")
	return file, os.WriteFile(file, []byte(content), 0o644)
}
