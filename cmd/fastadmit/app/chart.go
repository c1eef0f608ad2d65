package app

import (
	"errors"
	"io"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/internal/registration"
)

// chartValues are the values of the Helm chart for plugins that are not built in.
type chartValues struct {
	ExtraPlugins map[string]*chartPlugin `json:"extraPlugins"`
}

// A chartPlugin describes a plugin to the chart, as files/plugins.yaml does.
type chartPlugin struct {
	// Everything is true if the plugin gets every resource, unless the rules in its
	// settings narrow this.
	Everything  bool   `json:"everything,omitempty"`
	SideEffects string `json:"sideEffects,omitempty"`
	// Cluster are the permissions that the plugin needs in the cluster.
	Cluster []rbacv1.PolicyRule `json:"cluster,omitempty"`
	// Writes is true if the plugin writes to the cluster. Callers must be authenticated
	// then.
	Writes   bool                                         `json:"writes,omitempty"`
	Mutate   []admissionregistrationv1.RuleWithOperations `json:"mutate,omitempty"`
	Validate []admissionregistrationv1.RuleWithOperations `json:"validate,omitempty"`
}

func listForChart(out io.Writer, plugins []listed) error {
	values := chartValues{ExtraPlugins: make(map[string]*chartPlugin)}
	for i := range plugins {
		if !plugins[i].plugin.OutOfTree {
			continue
		}
		var err error
		if values.ExtraPlugins[plugins[i].Name], err = newChartPlugin(plugins[i].plugin); err != nil {
			return err
		}
	}
	if len(values.ExtraPlugins) == 0 {
		return errors.New("all plugins are built in, and the chart knows them; -o chart is for a binary with your own plugins")
	}
	text, err := yaml.Marshal(values)
	if err == nil {
		_, err = out.Write(text)
	}
	return err
}

func newChartPlugin(plugin *admission.Plugin) (*chartPlugin, error) {
	r, err := registration.New([]registration.Plugin{{Plugin: plugin}}, new(registration.Options), field.NewPath(plugin.Name))
	if err != nil {
		return nil, err
	}
	p := &chartPlugin{Cluster: cluster.Rules(plugin.Needs...)}
	for i := range plugin.Needs {
		p.Writes = p.Writes || len(plugin.Needs[i].Writes()) > 0
	}
	if r.Mutating != nil {
		p.Mutate = r.Mutating.Webhooks[0].Rules
		p.setSideEffects(r.Mutating.Webhooks[0].SideEffects)
	}
	if r.Validating != nil {
		p.Validate = r.Validating.Webhooks[0].Rules
		p.setSideEffects(r.Validating.Webhooks[0].SideEffects)
	}
	for _, rule := range slices.Concat(p.Mutate, p.Validate) {
		p.Everything = p.Everything || slices.Contains(rule.Resources, "*") || slices.Contains(rule.Resources, "*/*")
	}
	return p, nil
}

func (p *chartPlugin) setSideEffects(class *admissionregistrationv1.SideEffectClass) {
	if *class != admissionregistrationv1.SideEffectClassNone {
		p.SideEffects = string(*class)
	}
}
