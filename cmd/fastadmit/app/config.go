package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/config"
	"github.com/fastadmit/fastadmit/internal/offline/report"
	"github.com/fastadmit/fastadmit/internal/printable"
	"github.com/fastadmit/fastadmit/internal/server"
)

func newConfigCommand(o *options) *cobra.Command {
	s, file := newServeOptions(o), ""
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the configuration that serve would use",
		Long: `Reads the flags and files of serve, and prints the resulting configuration with all defaults, as a file
for --config. Settings that have only a flag are printed as comments. If the flags or files have
errors, it reports all of them, prints no configuration and exits with 2. It does not read certificates,
keys and the credentials of callers.

With --rendered, flags and files are those of the pods that the chart would create, so that errors in
values show before an installation.`,
		Example: "  fastadmit config --config=fastadmit.yaml\n" +
			"  helm template fastadmit deploy/chart -f values.yaml | fastadmit config --rendered=-",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file != "" {
				return broken(s.printRendered(cmd.Context(), cmd, file))
			}
			return broken(s.print(cmd.Context(), cmd.OutOrStdout()))
		},
	}
	s.addFlags(cmd)
	s.useKubeconfig(unusedCluster, unusedCluster)
	cmd.Flags().StringVar(&file, renderedFlag, "", "file with the manifests of the chart, - for standard input: use the flags of its Deployment and the files of its ConfigMap")
	completeFiles(cmd, renderedFlag, manifestExtensions()...)
	return cmd
}

func (o *serveOptions) print(ctx context.Context, w io.Writer) error {
	head := o.onlyFlags() // loadOnly changes them
	in, err := o.loadOnly(ctx)
	if err != nil {
		return err
	}
	if err := o.use(&in); err != nil {
		return err
	}
	text, err := json.Marshal(o.effective(&in))
	if err == nil {
		text, err = report.Document(text)
	}
	for _, name := range o.unused {
		head += "# " + report.Unused(name) + ".\n"
	}
	if err == nil {
		_, err = fmt.Fprintf(w, "%s%s", head, text)
	}
	return failed(err)
}

// onlyFlags returns the settings that have a flag but no field in the file, as comments.
func (o *serveOptions) onlyFlags() string {
	text := "# Only flags set:\n"
	for _, name := range []string{"admission-control-config-file", "cluster-state-dir", "debug-cel-interpreter",
		"default-not-ready-toleration-seconds", "default-unreachable-toleration-seconds", "kubeconfig"} {
		text += fmt.Sprintf("#   --%s=%s\n", name, printable.Word(o.flags.Lookup(name).Value.String()))
	}
	return text
}

// effective returns the configuration with its defaults, the enabled plugins in
// their order.
func (o *serveOptions) effective(in *selected) *config.Configuration {
	c := &config.Configuration{
		APIVersion: config.APIVersion, Kind: config.Kind,
		EnableAdmissionPlugins: in.names(), Server: *o.settings, Record: *o.record, Shadow: in.Shadow, Registration: *in.Registration.WithDefaults(),
		ImageReview: in.ImageReview,
	}
	fillSelectors(&c.Registration.NamespaceSelector, &c.Registration.ObjectSelector)
	for _, plugin := range in.chain.Plugins() {
		p := config.Plugin{Name: plugin.Name}
		for _, configured := range in.Plugins {
			if configured.Name == plugin.Name {
				p = configured
			}
		}
		fillDefaults(&p, plugin)
		c.Plugins = append(c.Plugins, p)
	}
	return c
}

// fillSelectors sets missing selectors to empty ones, which select everything.
func fillSelectors(selectors ...**metav1.LabelSelector) {
	for _, selector := range selectors {
		if *selector == nil {
			*selector = new(metav1.LabelSelector)
		}
	}
}

func fillDefaults(p *config.Plugin, plugin *admission.Plugin) {
	if p.Rules == nil {
		for i := range plugin.Rules {
			p.Rules = append(p.Rules, plugin.Rules[i].WithOperations())
		}
	}
	if p.FailurePolicy == "" {
		p.FailurePolicy = admissionregistrationv1.Fail
	}
	if p.ReinvocationPolicy == "" {
		p.ReinvocationPolicy = admissionregistrationv1.NeverReinvocationPolicy
	}
	if p.Timeout == nil {
		p.Timeout = &metav1.Duration{Duration: server.TimeoutMax}
	}
	fillSelectors(&p.NamespaceSelector, &p.ObjectSelector)
	if p.Enforcement == nil {
		p.Enforcement = []config.Enforcement{{Action: admission.ActionDeny}}
	}
}
