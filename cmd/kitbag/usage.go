package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/internal/lazy"
	"github.com/kitbag-go/kitbag/internal/near"
)

// usage returns an error of wrong usage, which refers the user to the help and has its own exit code.
func usage(format string, args ...any) error { return &exit{exitUsage, fmt.Errorf(format, args...)} }

// group makes cmd a command that only has subcommands. Without one it prints its help.
func group(cmd *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	cmd.Args = noArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(subcommands...)
	return cmd
}

// noArgs rejects arguments as wrong usage. An argument of a group was meant as a subcommand.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	if len(names) == 0 {
		return usage("%s takes no argument %q", cmd.CommandPath(), args[0])
	}
	return usage("unknown command %q for %q%s", args[0], cmd.CommandPath(), suggestion(args[0], names))
}

// between returns a check of the number of arguments, whose error says what is wanted.
func between(least, most int, want string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return usage("want %s, got %d arguments", want, len(args))
		}
		return nil
	}
}

// suggestion returns the most similar of the names, or else all of them, to append to an error.
func suggestion(word string, names []string) string {
	if like := near.Names(word, names, 1); len(like) > 0 {
		return fmt.Sprintf("; did you mean %q?", like[0])
	}
	slices.Sort(names)
	return "; choose from " + strings.Join(names, ", ")
}

// flagNames matches the flags in a help text, and flagInError the flag in an error of the flag library.
var (
	flagNames   = lazy.Regexp(`(?m)^ +(?:-\w, )?--([\w-]+)`)
	flagInError = lazy.Regexp(`flag: --([\w-]+)$|for ".*--([\w-]+)" flag: `)
)

// flagError replaces an error of the flag library, which is about parsing, by one about the command line.
func flagError(cmd *cobra.Command, err error) error {
	found := flagInError().FindStringSubmatch(err.Error())
	if found == nil {
		return usage("%w", err)
	}
	var names []string
	for _, f := range flagNames().FindAllStringSubmatch(cmd.Flags().FlagUsages(), -1) {
		names = append(names, f[1])
	}
	if unknown := found[1]; unknown != "" {
		if like := near.Names(unknown, names, 1); len(like) > 0 {
			return usage("%w; did you mean --%s?", err, like[0])
		}
		return usage("%w", err)
	}
	flag := cmd.Flags().Lookup(found[2])
	value, ok := errors.AsType[interface {
		error
		GetValue() string
	}](err)
	want := map[string]string{"int": "a whole number such as 20", "duration": "a time such as 90s or 5m", "bool": "true or false"}
	if flag == nil || !ok || want[flag.Value.Type()] == "" {
		return usage("%w", err)
	}
	return usage("--%s %q: it must be %s", flag.Name, value.GetValue(), want[flag.Value.Type()])
}

// strictDefaults adds cobra's own commands, and makes them reject unknown arguments as the others do.
func strictDefaults(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "completion":
			group(c).Example = "  source <(kitbag completion bash)"
		case "help":
			c.Example, c.Run, c.RunE = "  kitbag help mcp serve", nil, help
		}
	}
}

// help prints the help of the command that args name.
func help(cmd *cobra.Command, args []string) error {
	about, rest, err := cmd.Root().Find(args)
	if err != nil {
		about, rest = cmd.Root(), args
	}
	if len(rest) > 0 {
		return noArgs(about, rest)
	}
	about.InitDefaultHelpFlag() // otherwise the help does not list --help
	return about.Help()
}
