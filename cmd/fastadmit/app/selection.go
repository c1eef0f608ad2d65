package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/VictoriaMetrics/metrics"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/internal/cluster"
	"github.com/fastadmit/fastadmit/internal/config"
)

// A selection is which plugins run, and how they are configured: what the
// commands that run plugins have in common. The flags are spelled as
// kube-apiserver spells them.
type selection struct {
	options         *options
	flags           *pflag.FlagSet
	enable, disable []string
	admissionFile   string
	configFile      string
	kubeconfig      string
	clusterStateDir string
	namespaces      namespaces
}

func (s *selection) addFlags(flags *pflag.FlagSet) {
	s.flags = flags
	flags.StringSliceVar(&s.enable, "enable-admission-plugins", nil,
		"the admission plugins to run, comma-separated; the order does not matter")
	flags.StringSliceVar(&s.disable, "disable-admission-plugins", nil,
		"admission plugins not to run; none runs that is not enabled")
	flags.StringVar(&s.admissionFile, "admission-control-config-file", "",
		"file with the plugins' configuration, an apiserver.config.k8s.io/v1 AdmissionConfiguration")
	flags.StringVar(&s.configFile, "config", "",
		"file with how plugins are run, and what else the flags can say, a "+config.APIVersion+" "+config.Kind)
	flags.StringVar(&s.kubeconfig, "kubeconfig", "",
		"file that says how to reach the API server, where a namespaceSelector needs it; without one, the cluster this runs in")
	flags.StringVar(&s.clusterStateDir, "cluster-state-dir", "",
		"folder with objects in YAML or JSON that stand for the cluster, instead of an API server")
	flags.Int64Var(&s.options.inTree.Tolerations.NotReadyTolerationSeconds, "default-not-ready-toleration-seconds",
		s.options.inTree.Tolerations.NotReadyTolerationSeconds,
		"tolerationSeconds of the toleration for notReady:NoExecute that DefaultTolerationSeconds adds")
	flags.Int64Var(&s.options.inTree.Tolerations.UnreachableTolerationSeconds, "default-unreachable-toleration-seconds",
		s.options.inTree.Tolerations.UnreachableTolerationSeconds,
		"tolerationSeconds of the toleration for unreachable:NoExecute that DefaultTolerationSeconds adds")
}

// selected are plugins that were made ready.
type selected struct {
	*config.Loaded
	chain *handlers.Chain
}

// names returns the names of the plugins in order.
func (s *selected) names() []string {
	var names []string
	for _, plugin := range s.chain.Plugins() {
		names = append(names, plugin.Name)
	}
	return names
}

// load reads the configuration and makes the plugins ready; those of last that
// did not change are kept. What is loaded is there after an error, too, for its
// Files. An error about flags is one of usage.
func (s *selection) load(last *handlers.Chain) (selected, error) {
	table := s.options.table()
	names := make([]string, len(table))
	for i := range table {
		names[i] = table[i].Name
	}
	if err := s.checkFlags(names); err != nil {
		return selected{Loaded: new(config.Loaded)}, err
	}
	loaded, err := config.Read(config.Source{
		File: s.configFile, AdmissionFile: s.admissionFile, Known: names, Namespaces: &s.namespaces,
	})
	if err != nil {
		return selected{Loaded: loaded}, failed(err)
	}
	if s.flags.Changed("enable-admission-plugins") {
		loaded.EnableAdmissionPlugins = s.enable
	}
	enabled := make(map[string]handlers.Enabled)
	for _, name := range loaded.EnableAdmissionPlugins {
		if !slices.Contains(s.disable, name) {
			enabled[name] = handlers.Enabled{Config: loaded.Configs[name], Settings: loaded.Settings[name]}
		}
	}
	if len(enabled) == 0 {
		return selected{Loaded: loaded}, errors.New("no admission plugin is enabled: name some with --enable-admission-plugins; fastadmit plugins lists all")
	}
	chain, err := handlers.NewChain(table, enabled, last)
	return selected{loaded, chain}, failed(err)
}

func (s *selection) checkFlags(known []string) error {
	for _, name := range slices.Concat(s.enable, s.disable) {
		if !slices.Contains(known, name) {
			return fmt.Errorf("unknown admission plugin %q; fastadmit plugins lists all", name)
		}
	}
	for _, name := range s.enable {
		if slices.Contains(s.disable, name) {
			return fmt.Errorf("%s is both enabled and disabled", name)
		}
	}
	for _, name := range known {
		if name := strings.ToLower(name); name == "fail" || name == "ignore" {
			return fmt.Errorf("a plugin cannot have the name %q, which is that of an endpoint", name)
		}
	}
	return nil
}

// follow makes the cluster known that the selectors ask, if they do and it is
// not yet. Where there is none to ask, it is a new one if imagined is set.
func (s *selection) follow(ctx context.Context, loaded *config.Loaded, imagined bool, log *slog.Logger, set *metrics.Set) error {
	if !loaded.NeedsNamespaces || s.namespaces.state.Load() != nil {
		return nil
	}
	state, err := cluster.New(cluster.Options{
		Kinds:      []*cluster.Kind{cluster.Namespace},
		Kubeconfig: s.kubeconfig,
		Dir:        s.clusterStateDir,
		Embedded:   imagined && s.kubeconfig == "" && s.clusterStateDir == "",
		UserAgent:  "fastadmit",
		Log:        log,
		Metrics:    set,
	})
	if err != nil {
		return fmt.Errorf("cannot look up the namespaces that a namespaceSelector asks for: %w", err)
	}
	known, err := state.Namespaces()
	if err != nil {
		return err
	}
	s.namespaces.imagined = imagined && s.kubeconfig == "" && s.clusterStateDir == ""
	state.Start(ctx)
	s.namespaces.state.Store(state)
	s.namespaces.known.Store(known)
	return nil
}

// namespaces are those of a cluster that is followed from when a selector needs
// them.
type namespaces struct {
	state atomic.Pointer[cluster.State] // nil until then
	known atomic.Pointer[cluster.Namespaces]

	// imagined says that there is no cluster to ask: each namespace is there,
	// with the label that Kubernetes gives it.
	imagined bool
}

// Labels implements match.Namespaces.
func (n *namespaces) Labels(ctx context.Context, name string) (labels.Set, error) {
	known := n.known.Load()
	if known == nil {
		return nil, errors.New("the cluster is not followed") // follow comes before the chain is used
	}
	found, err := known.Labels(ctx, name)
	if err != nil && n.imagined && apierrors.IsNotFound(err) {
		return labels.Set{corev1.LabelMetadataName: name}, nil
	}
	return found, err
}

// ready says which part of the cluster's state is missing yet.
func (n *namespaces) ready() error {
	if state := n.state.Load(); state != nil {
		return state.Ready()
	}
	return nil
}
