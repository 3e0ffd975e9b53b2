package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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
		switch {
		case len(args) == 0 && least > 0:
			return usage("want %s", want)
		case len(args) < least || len(args) > most:
			return usage("want %s, got %q", want, args)
		}
		return nil
	}
}

// suggestion returns the most similar of the names, or else all of them, to append to an error.
func suggestion(word string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	if like := near.Names(word, names, 1); len(like) > 0 {
		return fmt.Sprintf("; did you mean %q?", like[0])
	}
	slices.Sort(names)
	return "; choose from " + strings.Join(names, ", ")
}

// commandRemedies are for commands with an argument COMMAND whose flags were taken for flags of kitbag.
var commandRemedies = map[string]string{
	"kitbag mcp add":            "put -- before the command: kitbag mcp add NAME -- COMMAND",
	"kitbag permission explain": "put the command in quotes: kitbag permission explain 'COMMAND'",
	"kitbag sandbox":            "put -- before the command: kitbag sandbox -- COMMAND",
}

// flagError replaces an error of the flag library, which is about parsing, by one about the command line.
func flagError(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if like := near.Names(unknown.GetSpecifiedName(), names, 1); len(like) > 0 {
			return usage("%w; did you mean --%s?", err, like[0])
		}
		if remedy := commandRemedies[cmd.CommandPath()]; remedy != "" {
			return usage("%w; %s", err, remedy)
		}
	}
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		wants := map[string]string{"int": "a whole number such as 20", "duration": "a time such as 90s or 5m", "bool": "true or false", "float64": "a number such as 2.5"}
		if want := wants[invalid.GetFlag().Value.Type()]; want != "" {
			return usage("--%s %q: it must be %s", invalid.GetFlag().Name, invalid.GetValue(), want)
		}
	}
	return usage("%w", err)
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
