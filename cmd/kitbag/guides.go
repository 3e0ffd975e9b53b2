package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// guideNames are the files in which projects keep instructions for agents.
var guideNames = []string{"AGENTS.md", "CLAUDE.md"}

// maxGuides limits the total size of the guides for the model, in bytes.
const maxGuides = 64 << 10

// A guide is a file of instructions with its content.
type guide struct{ file, text string }

// projectGuides reads the guides of dir and of the directories above it in its repository, nearest first. It skips
// symbolic links, which lead to another guide or out of the project. It stops before the guide that would exceed maxGuides.
func projectGuides(dir string) (guides []guide, err error) {
	size := 0
	for _, d := range upToRepository(dir) {
		for _, name := range guideNames {
			file := filepath.Join(d, name)
			data, err := readSmall(file, os.Lstat)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				continue
			case err != nil:
				if info, linkErr := os.Lstat(file); linkErr == nil && info.Mode()&fs.ModeSymlink != 0 {
					continue
				}
				return nil, fmt.Errorf("%s: %w", file, err)
			case !utf8.Valid(data):
				return nil, fmt.Errorf("%s is not UTF-8; save it as UTF-8", file)
			}
			if size += len(data); size > maxGuides {
				return guides, nil
			}
			if strings.TrimSpace(string(data)) != "" {
				guides = append(guides, guide{file, string(data)})
			}
		}
	}
	return guides, nil
}

// upToRepository returns dir and the directories above it up to the one that has .git, or only dir if none has.
func upToRepository(dir string) []string {
	var dirs []string
	for d := dir; ; d = filepath.Dir(d) {
		dirs = append(dirs, d)
		if _, err := os.Lstat(filepath.Join(d, ".git")); err == nil {
			return dirs
		}
		if d == filepath.Dir(d) {
			return dirs[:1]
		}
	}
}

// withGuides appends the guides to the system prompt.
func (f *agentFlags) withGuides(system string) string {
	for _, g := range f.config.guides {
		system += fmt.Sprintf("\n\nInstructions of the project, from %s:\n\n%s", g.file, strings.TrimSpace(g.text))
	}
	return system
}
