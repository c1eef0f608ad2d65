package app

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
)

// listings are the formats of fastadmit plugins.
var listings = []struct {
	name string
	list func(w io.Writer, plugins []listed) error
}{
	{"text", listShort},
	{"wide", listWide},
	{"json", listJSON},
	{"yaml", listYAML},
	{"name", listNames},
	{"chart", listForChart},
}

func listingNames() []string {
	names := make([]string, len(listings))
	for i := range listings {
		names[i] = listings[i].name
	}
	return names
}

func newPluginsCommand(o *options) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "plugins",
		Short: "List the admission plugins, in the order in which they run",
		Long: `Lists the admission plugins in the order in which they run: whether they mutate or validate, what they
need besides a review, and whether kube-apiserver has them. -o wide adds a summary, the resources that
they handle, and the kinds that they read from the cluster. -o chart prints, for a binary with your own
plugins, the values that describe them to the Helm chart.`,
		Example: "  fastadmit plugins -o wide\n" +
			"  my-fastadmit plugins -o chart > plugins.yaml && helm install fastadmit deploy/chart -f plugins.yaml -f values.yaml",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			i := slices.Index(listingNames(), output)
			if i < 0 {
				return fmt.Errorf("--output: got %q, want one of %s", output, strings.Join(listingNames(), ", "))
			}
			return failed(listings[i].list(cmd.OutOrStdout(), o.listed()))
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "format: "+strings.Join(listingNames(), ", "))
	completeValues(cmd, "output", listingNames()...)
	return cmd
}

// needsConfig stands in the list for a configuration file that a plugin requires.
const needsConfig = "a configuration"

// listed is a plugin in the list.
type listed struct {
	Name      string   `json:"name"`
	Summary   string   `json:"summary"`
	Mutates   bool     `json:"mutates"`
	Validates bool     `json:"validates"`
	Resources []string `json:"resources"`
	// Needs are kinds of objects of the cluster, and needsConfig.
	Needs         []string `json:"needs"`
	KubeAPIServer string   `json:"kubeAPIServer"`

	short  string // a short form of its needs
	plugin *admission.Plugin
}

func (o *options) listed() []listed {
	var all []listed
	table := o.table()
	for i := range table {
		p := &table[i]
		l := listed{
			Name: p.Name, Summary: p.Summary, Mutates: p.Mutates, Validates: p.Validates,
			Resources: resources(p), Needs: needs(p), KubeAPIServer: inAPIServer(p), short: "nothing", plugin: p,
		}
		switch {
		case p.RequiresConfig:
			l.short = needsConfig
		case len(p.Needs) > 0:
			l.short = "the cluster"
		}
		all = append(all, l)
	}
	return all
}

// does returns the phases in which the plugin runs.
func (l *listed) does() string {
	var does []string
	if l.Mutates {
		does = append(does, "mutates")
	}
	if l.Validates {
		does = append(does, "validates")
	}
	return strings.Join(does, ",")
}

// resources returns the resources that the plugin's rules select, without duplicates.
func resources(plugin *admission.Plugin) []string {
	all := []string{}
	for _, rule := range plugin.Rules {
		for _, resource := range rule.Resources {
			if !slices.Contains(all, resource) {
				all = append(all, resource)
			}
		}
	}
	return all
}

func needs(plugin *admission.Plugin) []string {
	all := []string{}
	if plugin.RequiresConfig {
		all = append(all, needsConfig)
	}
	for _, need := range plugin.Needs {
		if kind := need.String(); !slices.Contains(all, kind) {
			all = append(all, kind)
		}
	}
	return all
}

func inAPIServer(plugin *admission.Plugin) string {
	switch {
	case plugin.OnByDefault:
		return "on by default"
	case plugin.LastRelease != "":
		return "removed after " + plugin.LastRelease
	case plugin.OutOfTree:
		return "no"
	}
	return "off by default"
}

// listShort fits a terminal.
func listShort(out io.Writer, plugins []listed) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tDOES\tNEEDS\tIN KUBE-APISERVER")
	for i := range plugins {
		p := &plugins[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", p.Name, p.does(), p.short, p.KubeAPIServer)
	}
	return w.Flush()
}

func listWide(out io.Writer, plugins []listed) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tDOES\tRESOURCES\tWHAT IT DOES\tNEEDS\tIN KUBE-APISERVER")
	for i := range plugins {
		p := &plugins[i]
		needs := strings.Join(p.Needs, ", ")
		if needs == "" {
			needs = "nothing"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", p.Name, p.does(), strings.Join(p.Resources, ","), p.Summary, needs, p.KubeAPIServer)
	}
	return w.Flush()
}

func listJSON(out io.Writer, plugins []listed) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(plugins)
}

func listYAML(out io.Writer, plugins []listed) error {
	text, err := yaml.Marshal(plugins)
	if err == nil {
		_, err = out.Write(text)
	}
	return err
}

func listNames(out io.Writer, plugins []listed) error {
	for i := range plugins {
		if _, err := fmt.Fprintln(out, plugins[i].Name); err != nil {
			return err
		}
	}
	return nil
}
