package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fastadmit/fastadmit/internal/alike"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
)

// completeValues makes shells complete the values of a flag.
func completeValues(cmd *cobra.Command, flag string, values ...string) {
	complete(cmd, flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return values, cobra.ShellCompDirectiveNoFileComp
	})
}

// completeLists makes shells complete the values of a flag that takes a comma-separated list.
func completeLists(cmd *cobra.Command, flag string, values func() []string) {
	complete(cmd, flag, func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		before := typed[:strings.LastIndexByte(typed, ',')+1]
		given := strings.Split(before, ",")
		var all []string
		for _, value := range values() {
			if !slices.Contains(given, value) {
				all = append(all, before+value)
			}
		}
		return all, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
}

// completeFiles makes shells complete the value of a flag with files that have one of the
// extensions, or with folders if there is no extension.
func completeFiles(cmd *cobra.Command, flag string, extensions ...string) {
	complete(cmd, flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		if len(extensions) == 0 {
			return nil, cobra.ShellCompDirectiveFilterDirs
		}
		return extensions, cobra.ShellCompDirectiveFilterFileExt
	})
}

func complete(cmd *cobra.Command, flag string, f cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err) // there is no such flag, or it is completed already
	}
}

// manifestExtensions are those of manifests, without the dot.
func manifestExtensions() []string {
	var all []string
	for _, extension := range manifest.Extensions {
		all = append(all, strings.TrimPrefix(extension, "."))
	}
	return all
}

// explainFlag adds to the error of an unknown flag the name that may have been meant, and says what a flag takes.
func explainFlag(cmd *cobra.Command, err error) error {
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		if want := wantedValues[wrong.GetFlag().Value.Type()]; want != "" {
			return fmt.Errorf("--%s: got %q, want %s", wrong.GetFlag().Name, wrong.GetValue(), want)
		}
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || len(unknown.GetSpecifiedName()) < 2 {
		return err
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, "--"+f.Name) })
	return fmt.Errorf("%w%s", err, alike.Hint("--"+unknown.GetSpecifiedName(), known))
}

// wantedValues say what flags of Go's types take.
var wantedValues = map[string]string{
	"bool": "true or false", "duration": "a time such as 30s or 5m", "float32": "a number", "float64": "a number",
	"int": "a whole number", "int32": "a whole number", "int64": "a whole number", "uint64": "a whole number",
}
