package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/permission"
)

func initCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "init",
		Short: "Write a kitbag.json for this directory, after a few questions",
		Long: `Write a kitbag.json for the current directory, after a few questions: the endpoint and its
API, the model, the mode, and a rule to allow. An empty answer leaves a setting out. A
file that exists is not touched. Keys are not asked for: they are read from the
environment only, OPENAI_API_KEY or, for Claude models, ANTHROPIC_API_KEY.`,
		Example: "  kitbag init",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !isTerminal(cmd.InOrStdin()) || !isTerminal(cmd.ErrOrStderr()) {
				return usage("init asks questions, so it needs a terminal; without one write %s by hand (kitbag run --help)", configFile)
			}
			return writeInit(cmd.Context(), newPrompt(cmd.InOrStdin(), cmd.ErrOrStderr()))
		},
	}
}

// An initConfig is what init writes.
type initConfig struct {
	Model       string `json:"model,omitempty"`
	API         string `json:"api,omitempty"`
	BaseURL     string `json:"baseURL,omitempty"`
	Permissions struct {
		Mode  string   `json:"mode,omitempty"`
		Allow []string `json:"allow,omitempty"`
	} `json:"permissions,omitzero"`
}

func writeInit(ctx context.Context, p *prompt) error {
	dir, err := currentDir()
	if err != nil {
		return err
	}
	file := filepath.Join(dir, configFile)
	if _, err := os.Lstat(file); err == nil {
		return fmt.Errorf("%s exists; change it by hand, or remove it first", file)
	}
	c, err := askInit(ctx, p)
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.out, "%s is written. kitbag chat asks whether you trust it; kitbag doctor checks the set-up.\n", plainLine(file))
	return err
}

// askInit asks for each setting until the answer is valid or empty.
func askInit(ctx context.Context, p *prompt) (c initConfig, err error) {
	ask := func(question string, check func(string) error) (answer string, err error) {
		for {
			if answer, err = p.readTrimmed(ctx, question); err != nil || answer == "" {
				return answer, err
			}
			invalid := check(answer)
			if invalid == nil {
				return answer, nil
			}
			fmt.Fprintf(p.out, "  ! %s\n", indented(invalid.Error()))
		}
	}
	if c.BaseURL, err = ask("Endpoint, such as http://localhost:11434/v1 [OpenAI's, or Anthropic's if the model is claude-…]: ", checkURL); err != nil {
		return c, err
	}
	if c.Model, err = p.readTrimmed(ctx, "Model [$KITBAG_MODEL]: "); err != nil {
		return c, err
	}
	if c.BaseURL != "" {
		if c.API, err = ask(fmt.Sprintf("API of that endpoint, one of %s [by the name of the model]: ", strings.Join(apis, ", ")), oneOf(apis)); err != nil {
			return c, err
		}
	}
	if c.Permissions.Mode, err = ask(fmt.Sprintf("Mode, one of %s [default]: ", strings.Join(modes, ", ")), oneOf(modes)); err != nil {
		return c, err
	}
	for {
		rule, err := ask("Allow without a question, such as Bash(go test:*) [nothing more]: ", func(text string) error {
			_, err := permission.ParseRule(text, permission.Allow)
			return err
		})
		if err != nil || rule == "" {
			return c, err
		}
		c.Permissions.Allow = append(c.Permissions.Allow, rule)
	}
}

// oneOf returns a check that an answer is one of the names.
func oneOf(names []string) func(string) error {
	return func(text string) error {
		if !slices.Contains(names, text) {
			return fmt.Errorf("%q is none of %s", text, strings.Join(names, ", "))
		}
		return nil
	}
}

func checkURL(text string) error {
	if !strings.HasPrefix(text, "http://") && !strings.HasPrefix(text, "https://") {
		return errors.New("it must begin with http:// or https://")
	}
	return nil
}
