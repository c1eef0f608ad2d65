package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fastadmit/fastadmit/internal/certs"
)

// awaitTimeout is how long fastadmit await waits. Pods take seconds to be ready
// and registered, a change of the ConfigMap a minute and a half to reach them;
// helm waits for five minutes.
const awaitTimeout = 3 * time.Minute

type awaitOptions struct {
	serveOptions
	timeout time.Duration
}

func newAwaitCommand(o *options) *cobra.Command {
	a := &awaitOptions{serveOptions: serveOptions{selection: selection{options: o}}}
	cmd := &cobra.Command{
		Use:   "await",
		Short: "Wait until kube-apiserver calls serve for the enabled plugins",
		Long: "Waits until the webhook configurations that serve makes with --cert-secret-name are registered with\n" +
			"the rules of the enabled plugins, their caBundle trusts what is served at their Service, and a call\n" +
			"through that Service is answered by replicas that have read the same configuration. It takes the\n" +
			"flags and files of serve, and changes nothing. The Helm chart runs it after an installation, so that\n" +
			"what is installed is enforced. If that does not happen in time, the exit code is 1, and standard\n" +
			"error says what is missing.",
		Example: "  fastadmit await --config=fastadmit.yaml --cert-secret-name=fastadmit-certificate --timeout=1m",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	a.selection.addFlags(cmd)
	a.useKubeconfig("file that says how to reach the API server; without one, the cluster this runs in", unusedCluster)
	a.serverOptions.addFlags(cmd.Flags())
	cmd.Flags().DurationVar(&a.timeout, "timeout", awaitTimeout, "how long to wait")
	return cmd
}

func (a *awaitOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	kubeconfig := a.cluster.kubeconfig
	in, err := a.loadOnly(ctx)
	if err != nil {
		return err
	}
	if err := a.fill(a.flags, &in.Server); err != nil {
		return err
	}
	if a.managed.secretName == "" || len(a.managed.registered) > 0 {
		return errors.New("await goes with --cert-secret-name and without --webhook-configurations: fastadmit registers nothing otherwise")
	}
	a.callers.managed = a.managed.makesPathToken(&a.callers)
	options, err := a.managed.options(kubeconfig, &in, &a.callers)
	if err != nil {
		return failed(err)
	}
	options.Log, options.Configuration = newLog(stderr), in.Digest
	manager, err := certs.New(*options)
	if err != nil {
		return failed(err)
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	if err := manager.AwaitRegistered(ctx); err != nil {
		return failed(fmt.Errorf("after %s, kube-apiserver does not call fastadmit as configured: %w; the log of the pods, their /readyz?verbose and the Events of the Deployment say why", a.timeout, err))
	}
	_, err = fmt.Fprintf(stdout, "fastadmit: kube-apiserver calls fastadmit for %s\n", strings.Join(in.names(), ", "))
	return failed(err)
}
