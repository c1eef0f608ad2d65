// Package teamlabel is the admission plugin TeamLabel, an example that reads the
// cluster.
//
// Every pod must have a label "team" with the name of a Team, a custom resource. A pod
// without the label gets the default from the ConfigMap "team" of its namespace. All
// containers get the cost center of the Team as an environment variable.
package teamlabel

import (
	"context"
	"fmt"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

var (
	configMaps = cluster.DefineJSON(cluster.Definition{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true},
		"data.default") // the only field that is cached, besides names and other metadata
	teams = cluster.DefineJSON(cluster.Definition{Group: "example.com", Version: "v1", Resource: "teams", Kind: "Team"},
		"spec.costCenter")
)

// Plugin returns the plugin, for app.WithPlugin.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:      "TeamLabel",
		Summary:   "requires pods to have the label of a team, and sets its cost center in their containers",
		Rules:     []admission.Rule{admission.NewRule("", "v1", "pods", codec.Create)},
		Mutates:   true,
		Validates: true,
		Needs:     []cluster.Need{configMaps.Watched(), teams.Watched()},
		New: func(setup admission.Setup) (admission.Handler, error) {
			p := &plugin{configMaps.In(setup.Cluster), teams.In(setup.Cluster)}
			return admission.Handler{Admit: p.admit, Validate: p.validate}, nil
		},
	}
}

type plugin struct {
	configMaps, teams *cluster.Objects[*cluster.JSON]
}

func (p *plugin) admit(_ context.Context, review *codec.Review) admission.Result {
	name := review.Object.Get("metadata", "labels", "team").String()
	if c, ok := p.configMaps.Cached(review.Namespace(), "team"); ok && name == "" {
		name = c.Value().Get("data", "default").String()
		review.Object.SetString(name, "metadata", "labels", "team")
	}
	team, ok := p.teams.Cached("", name)
	if !ok {
		return admission.Allowed() // validate denies the pod
	}
	center := codec.AppendString(nil, team.Value().Get("spec", "costCenter").String())
	env := fmt.Sprintf(`{"name":"COST_CENTER","value":%s}`, center)
	for _, list := range []string{"initContainers", "containers"} {
		for _, container := range review.Object.Get("spec", list).Elements() {
			if !container.Get("env").Find("name", "COST_CENTER").Exists() {
				container.Append(env, "env")
			}
		}
	}
	return admission.Allowed()
}

func (p *plugin) validate(_ context.Context, review *codec.Review) admission.Result {
	name := review.Object.Get("metadata", "labels", "team").String()
	if _, ok := p.teams.Cached("", name); !ok {
		return admission.Denied(admission.Forbidden(review, fmt.Errorf("metadata.labels[team]: got %q, want the name of a Team", name)))
	}
	return admission.Allowed()
}
