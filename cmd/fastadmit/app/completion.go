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

// completeValues has shells complete the values of a flag.
func completeValues(cmd *cobra.Command, flag string, values ...string) {
	complete(cmd, flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return values, cobra.ShellCompDirectiveNoFileComp
	})
}

// completeLists has shells complete the values of a flag that takes several,
// with commas between.
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

// completeFiles has shells complete the value of a flag with files that end in
// these, or with folders if there are none.
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

// explainFlag adds to the error of a wrong flag which one may have been meant.
func explainFlag(cmd *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || len(unknown.GetSpecifiedName()) < 2 {
		return err
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, "--"+f.Name) })
	return fmt.Errorf("%w%s", err, alike.Hint("--"+unknown.GetSpecifiedName(), known))
}
