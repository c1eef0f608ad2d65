// Package app is the fastadmit command with its subcommands. Import it to build a binary
// with plugins of your own:
//
//	func main() {
//		os.Exit(app.Execute(app.NewCommand(app.WithPlugin(myplugin.Plugin()))))
//	}
package app

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/internal/printable"
)

// Exit codes of the command.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// Option changes the command that NewCommand makes.
type Option func(*options)

type options struct {
	own     []admission.Plugin
	inTree  handlers.Options
	version string
}

// WithPlugin adds a plugin. Added plugins run after those of the table, in the
// order in which they were added.
func WithPlugin(plugin admission.Plugin) Option {
	plugin.OutOfTree = true
	return func(o *options) { o.own = append(o.own, plugin) }
}

// WithVersion sets the version that the command version, the flag --version and the
// metric fastadmit_build_info show. The default is the version of the module from
// which the binary was built.
func WithVersion(version string) Option {
	return func(o *options) { o.version = version }
}

// table returns all plugins in the order in which they run.
func (o *options) table() []admission.Plugin {
	return append(handlers.InTree(o.inTree), o.own...)
}

// kinds returns the kinds of objects that the plugins need.
func (o *options) kinds() []*cluster.Kind {
	var needs []cluster.Need
	for _, p := range o.table() {
		needs = append(needs, p.Needs...)
	}
	return cluster.KindsOf(needs...)
}

// NewCommand returns the fastadmit command.
func NewCommand(opts ...Option) *cobra.Command {
	o := &options{inTree: handlers.DefaultOptions()}
	for _, opt := range opts {
		opt(o)
	}
	root := &cobra.Command{
		Use:   "fastadmit",
		Short: "A Kubernetes admission webhook server with the plugins of kube-apiserver",
		Long: `Runs kube-apiserver's admission plugins, including those that Kubernetes has removed, as a webhook, for
clusters whose API server flags you cannot set. Also evaluates admission policies, and your own plugins.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       o.versionLine(),
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(explainFlag)
	root.AddCommand(newServeCommand(o), newReviewCommand(o), newAuditCommand(o), newTestCommand(o), newReplayCommand(o),
		newUpgradeCheckCommand(o), newConvertCommand(o), newRecordingsCommand(), newShadowCommand(), newPluginsCommand(o), newConfigCommand(o), newManifestsCommand(o), newAwaitCommand(o), newBenchCommand(),
		newVersionCommand(o))
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"})
	help.Args = func(_ *cobra.Command, names []string) error { // cobra says what is wrong, and succeeds
		_, _, err := root.Find(names)
		return err
	}
	return root
}

// noArgs refuses arguments.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("got the argument %q, want none", args[0])
	}
	return nil
}

// Execute runs the command with the arguments of the process, prints its error and
// returns the exit code: 0 if it succeeded, 1 if it failed, 2 for wrong usage. For
// fastadmit review and audit, 1 means that a request was denied, for fastadmit replay that
// an answer differs, and 2 means any other failure. If the program is called kubectl-NAME, help texts
// show the command as kubectl does.
func Execute(cmd *cobra.Command) int {
	nameAfter(cmd, os.Args[0])
	ran, err := cmd.ExecuteC()
	if err == nil {
		return exitDone
	}
	if ended, ok := errors.AsType[*exit](err); ok {
		if ended.error != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "fastadmit: %s\n", printable.Plain(ended.Error()))
		}
		return ended.code
	}
	var failed *failure
	if errors.As(err, &failed) {
		if failed.error != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "fastadmit: %s\n", printable.Plain(failed.Error()))
		}
		return exitFailed
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "fastadmit: %s\n%s --help shows the usage.\n", printable.Plain(strings.TrimSpace(err.Error())), ran.CommandPath())
	return exitUsage
}

// A failure is an error while the command does its work (exit code 1). All other errors
// are wrong usage. Without an error inside, the command has printed what is wrong.
type failure struct{ error }

func (f *failure) Unwrap() error { return f.error }

// An exit ends the command with a code. Without an error inside, the command has printed
// what is wrong.
type exit struct {
	code int
	error
}

func (e *exit) Unwrap() error { return e.error }

// failed makes err a failure; nil stays nil.
func failed(err error) error {
	if err == nil {
		return nil
	}
	return &failure{err}
}

// of says which flag an error is about.
func of(flag string, err error) error {
	if f, ok := errors.AsType[*failure](err); ok {
		return failed(fmt.Errorf("%s: %w", flag, f.error))
	}
	return fmt.Errorf("%s: %w", flag, err)
}

// broken makes a failure an exit with exitBroken, for commands that exit with exitDenied because of
// what they found.
func broken(err error) error {
	if f, ok := errors.AsType[*failure](err); ok {
		return &exit{exitBroken, f.error}
	}
	return err
}
