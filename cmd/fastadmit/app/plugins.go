package app

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/fastadmit/fastadmit/handlers"
)

func newPluginsCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "plugins",
		Short: "List the admission plugins, in the order in which they run",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tDOES\tRESOURCES\tWHAT IT DOES\tNEEDS\tIN KUBE-APISERVER")
			for _, plugin := range o.table() {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n",
					plugin.Name, phases(&plugin), resources(&plugin), plugin.Summary, needs(&plugin), inAPIServer(&plugin))
			}
			return failed(w.Flush())
		},
	}
}

func phases(plugin *handlers.Plugin) string {
	var does []string
	if plugin.Mutates {
		does = append(does, "mutates")
	}
	if plugin.Validates {
		does = append(does, "validates")
	}
	return strings.Join(does, ",")
}

// resources lists what the plugin's rules select, once each.
func resources(plugin *handlers.Plugin) string {
	var all []string
	for _, rule := range plugin.Rules {
		for _, resource := range rule.Resources {
			if !slices.Contains(all, resource) {
				all = append(all, resource)
			}
		}
	}
	return strings.Join(all, ",")
}

func needs(plugin *handlers.Plugin) string {
	var all []string
	if plugin.Needs != "" {
		all = append(all, plugin.Needs)
	}
	for _, need := range plugin.Cluster {
		if kind := need.String(); !slices.Contains(all, kind) {
			all = append(all, kind)
		}
	}
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, ", ")
}

func inAPIServer(plugin *handlers.Plugin) string {
	switch {
	case plugin.LastRelease != "":
		return "removed after " + plugin.LastRelease
	case plugin.OnByDefault:
		return "on by default"
	case plugin.Own:
		return "no"
	}
	return "off by default"
}
