package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fastadmit/fastadmit/internal/registration/certs"
	"github.com/fastadmit/fastadmit/internal/server"
)

// awaitTimeout is how long fastadmit await waits. Pods are ready and registered
// after seconds, but a change of a ConfigMap reaches them only after up to a
// minute and a half. helm waits for five minutes.
const awaitTimeout = 3 * time.Minute

type awaitOptions struct {
	serveOptions
	timeout time.Duration
}

func newAwaitCommand(o *options) *cobra.Command {
	a := &awaitOptions{serveOptions: *newServeOptions(o)}
	a.images = false
	cmd := &cobra.Command{
		Use:   "await",
		Short: "Wait until kube-apiserver calls serve for the enabled plugins",
		Long: `Waits until fastadmit is in effect: the webhook configurations that serve creates with
--cert-secret-name are registered with the rules of the enabled plugins, their caBundle matches the
serving certificate, and replicas with the same configuration answer a call through the Service. It
takes the flags and files of serve, and changes nothing. The Helm chart runs it after an installation.
After --timeout, it exits with 1 and prints what is missing to standard error.`,
		Example: "  fastadmit await --config=fastadmit.yaml --cert-secret-name=fastadmit-certificate --timeout=1m",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	a.addFlags(cmd)
	a.useKubeconfig("kubeconfig file for the API server; if empty, the cluster of the pod", unusedCluster)
	cmd.Flags().DurationVar(&a.timeout, "timeout", awaitTimeout, "how long to wait")
	return cmd
}

func (a *awaitOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	kubeconfig := a.cluster.kubeconfig
	in, err := a.loadOnly(ctx)
	if err != nil {
		return err
	}
	if err := a.use(&in); err != nil {
		return err
	}
	if a.settings.CertSecretName == "" || len(a.settings.WebhookConfigurations) > 0 {
		return errors.New("await needs --cert-secret-name without --webhook-configurations: otherwise fastadmit does not register webhooks")
	}
	options, err := a.managed.options(kubeconfig, &in, a.callers)
	if err != nil {
		return failed(err)
	}
	options.Log, options.Configuration = server.NewLog(stderr), in.Digest
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
