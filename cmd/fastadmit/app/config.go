package app

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/internal/config"
)

func newConfigCommand(o *options) *cobra.Command {
	s := &serveOptions{selection: selection{options: o}}
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the configuration that serve would use",
		Long: "Reads the same flags and files as serve, and prints what comes of them, with all defaults,\n" +
			"as a file for --config. Says everything that is wrong with them otherwise.",
		Example: "  fastadmit config --config=fastadmit.yaml",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return s.print(cmd.Context(), cmd.OutOrStdout()) },
	}
	s.selection.addFlags(cmd.Flags())
	s.serverOptions.addFlags(cmd.Flags())
	return cmd
}

func (o *serveOptions) print(ctx context.Context, w io.Writer) error {
	in, err := o.loadOnly(ctx)
	if err != nil {
		return err
	}
	if err := o.fill(o.flags, &in.Server); err != nil {
		return err
	}
	text, err := yaml.Marshal(o.effective(&in))
	if err == nil {
		_, err = w.Write(text)
	}
	return failed(err)
}

// effective returns the configuration with its defaults, the enabled plugins in
// their order.
func (o *serveOptions) effective(in *selected) *config.Configuration {
	c := &config.Configuration{
		APIVersion: config.APIVersion, Kind: config.Kind,
		EnableAdmissionPlugins: in.names(), Server: o.asFile(), Registration: in.Registration,
	}
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

func fillDefaults(p *config.Plugin, plugin *handlers.Plugin) {
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
		p.Timeout = &metav1.Duration{Duration: budgetMax}
	}
	for _, selector := range [...]**metav1.LabelSelector{&p.NamespaceSelector, &p.ObjectSelector} {
		if *selector == nil {
			*selector = new(metav1.LabelSelector)
		}
	}
	if p.Enforcement == nil {
		p.Enforcement = []config.Enforcement{{Action: handlers.ActionDeny}}
	}
}
