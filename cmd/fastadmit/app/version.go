package app

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersionCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), o.versionLine())
			return failed(err)
		},
	}
}

// versionLine returns the line that the command version prints.
func (o *options) versionLine() string {
	return fmt.Sprintf("fastadmit %s %s %s/%s", o.shownVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// shownVersion returns the given version or, if it is empty, the one that the
// go command recorded: the module's version, which names the commit when the
// binary was built from a checkout.
func (o *options) shownVersion() string {
	if o.version != "" {
		return o.version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
