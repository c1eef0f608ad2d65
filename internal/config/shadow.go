package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/shadow"
	"github.com/fastadmit/fastadmit/internal/strictyaml"
)

// Shadow has what to try. The shadow is the configuration with these lines in their places: what it
// would be after they were moved there.
type Shadow struct {
	// EnableAdmissionPlugins are plugins that run in the shadow besides those that are enabled.
	EnableAdmissionPlugins []string `json:"enableAdmissionPlugins,omitempty"`
	// Plugins has settings for single plugins. An entry replaces all settings that its plugin has outside of the
	// shadow.
	Plugins []Plugin `json:"plugins,omitempty"`
	// AdmissionConfiguration has configurations of plugins, as the file of --admission-control-config-file. An entry
	// replaces the one in that file.
	AdmissionConfiguration ShadowAdmission `json:"admissionConfiguration,omitzero"`
	// ProcessorPercent is how much of one processor the shadow may use, in percent. Reviews beyond that are skipped.
	ProcessorPercent int64 `json:"processorPercent,omitempty"`
	// MaxMemoryBytes is how much memory reviews may take in the shadow, in bytes. Larger reviews are skipped. 0 means a
	// twelfth of the memory of the process.
	MaxMemoryBytes int64 `json:"maxMemoryBytes,omitempty"`
}

// ShadowAdmission has the plugins of an AdmissionConfiguration.
type ShadowAdmission struct {
	// Plugins are as in an AdmissionConfiguration of apiserver.config.k8s.io/v1.
	Plugins []AdmissionPlugin `json:"plugins,omitempty"`
}

// DefaultShadow returns the default settings of the shadow, which tries nothing.
func DefaultShadow() Shadow { return Shadow{ProcessorPercent: shadow.ProcessorPercentDefault} }

// IsUsed reports whether there is something to try.
func (s *Shadow) IsUsed() bool {
	return len(s.EnableAdmissionPlugins)+len(s.Plugins)+len(s.AdmissionConfiguration.Plugins) > 0
}

// Changes reports whether a plugin that is enabled outside of the shadow has other settings in it.
func (s *Shadow) Changes(plugin string) bool {
	return slices.ContainsFunc(s.Plugins, func(p Plugin) bool { return p.Name == plugin }) ||
		slices.ContainsFunc(s.AdmissionConfiguration.Plugins, func(p AdmissionPlugin) bool { return p.Name == plugin })
}

// readShadow returns the configuration with the lines of the shadow in their places, nil if there are none. Only the
// list of enabled plugins is that of live, because a flag may override it. live is what was read without the shadow.
func (r *reader) readShadow(document *strictyaml.Document, live *Loaded) *Loaded {
	s := &live.Shadow
	if s.ProcessorPercent < 1 || s.ProcessorPercent > 100 {
		r.refuse(document.Errorf("shadow.processorPercent", "got %d, want 1 to 100", s.ProcessorPercent))
	}
	if s.MaxMemoryBytes < 0 {
		r.refuse(document.Errorf("shadow.maxMemoryBytes", "got %d, want 0 or more", s.MaxMemoryBytes))
	}
	if !s.IsUsed() {
		return nil
	}
	shadowed := &Loaded{Configuration: live.Configuration, Settings: maps.Clone(live.Settings), Configs: maps.Clone(live.Configs)}
	r.places, r.manifests, r.kubeconfigs = maps.Clone(r.places), maps.Clone(r.manifests), maps.Clone(r.kubeconfigs)
	enabled := make(map[string][]byte)
	for i, name := range s.EnableAdmissionPlugins {
		r.checkName(document, fmt.Sprintf("shadow.enableAdmissionPlugins[%d]", i), name, enabled)
	}
	if shadowed.Settings == nil {
		shadowed.Settings = make(map[string]admission.Settings)
	}
	maps.Copy(shadowed.Settings, r.allSettings(document, s.Plugins, live.PodTemplatePaths, field.NewPath("shadow", "plugins")))
	if shadowed.Configs == nil {
		shadowed.Configs = make(map[string][]byte)
	}
	configured := make(map[string][]byte)
	for i := range s.AdmissionConfiguration.Plugins {
		p := &s.AdmissionConfiguration.Plugins[i]
		path := fmt.Sprintf("shadow.admissionConfiguration.plugins[%d]", i)
		if r.checkName(document, path+".name", p.Name, configured) {
			delete(r.manifests, p.Name)
			delete(r.kubeconfigs, p.Name)
			shadowed.Configs[p.Name] = r.readConfig(document, path, p, filepath.Dir(r.source.File))
		}
	}
	r.finish(shadowed)
	return shadowed
}
