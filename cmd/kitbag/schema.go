package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/cmd/kitbag/internal/docgen"
)

// schemaFile is where schema gen writes by default, in the package's folder.
const schemaFile = "kitbag_schema.go"

func schemaCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:     "schema",
		Short:   "Generate code for the schemas of Go tools",
		Example: "  kitbag schema gen ./tools",
	}, schemaGenCommand())
}

// schemaGenCommand is "kitbag schema gen", made for go:generate.
func schemaGenCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "gen [flags] [DIRECTORY]",
		Short: "Write the doc comments of a Go package into a file for its tools",
		Long: `Write the doc comments of a Go package into a Go file of that package. The schemas of
the package's tools take their descriptions from this file, so the program needs no
source code when it runs.`,
		Example: "  //go:generate go run github.com/kitbag-go/kitbag/cmd/kitbag@latest schema gen\n  kitbag schema gen ./tools --out -    print the file",
		Args:    between(0, 1, "one DIRECTORY, of one package"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			if _, err := existingDir(dir); err != nil {
				return fmt.Errorf("schema gen %s: %w; name the directory of a Go package", dir, err)
			}
			var src bytes.Buffer
			if err := docgen.Generate(dir, &src); err != nil {
				return err
			}
			if out == "-" {
				_, err := src.WriteTo(cmd.OutOrStdout())
				return err
			}
			if !filepath.IsAbs(out) { // relative to the package
				out = filepath.Join(dir, out)
			}
			if err := refuseHandwritten(out); err != nil {
				return err
			}
			return os.WriteFile(out, src.Bytes(), 0o644)
		},
	}
	cmd.Flags().StringVar(&out, "out", schemaFile, "the `FILE` to write, in the directory; - for standard output")
	return cmd
}

// refuseHandwritten fails if path exists and was not written by schema gen.
func refuseHandwritten(path string) error {
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !bytes.HasPrefix(data, []byte(docgen.Marker)):
		return usage("%s was not written by kitbag schema gen; name another file with --out", path)
	}
	return nil
}
