package app

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/internal/config"
)

// A selection is which plugins run, and how they are configured: the flags
// that serve and review share, spelled as kube-apiserver spells them.
type selection struct {
	enable, disable []string
	configFile      string
	options         *options
}

func (s *selection) addFlags(flags *pflag.FlagSet) {
	flags.StringSliceVar(&s.enable, "enable-admission-plugins", nil,
		"the admission plugins to run, comma-separated; the order does not matter")
	flags.StringSliceVar(&s.disable, "disable-admission-plugins", nil,
		"admission plugins not to run; none runs that is not enabled")
	flags.StringVar(&s.configFile, "admission-control-config-file", "",
		"file with the plugins' configuration, an apiserver.config.k8s.io/v1 AdmissionConfiguration")
	flags.Int64Var(&s.options.inTree.Tolerations.NotReadyTolerationSeconds, "default-not-ready-toleration-seconds",
		s.options.inTree.Tolerations.NotReadyTolerationSeconds,
		"tolerationSeconds of the toleration for notReady:NoExecute that DefaultTolerationSeconds adds")
	flags.Int64Var(&s.options.inTree.Tolerations.UnreachableTolerationSeconds, "default-unreachable-toleration-seconds",
		s.options.inTree.Tolerations.UnreachableTolerationSeconds,
		"tolerationSeconds of the toleration for unreachable:NoExecute that DefaultTolerationSeconds adds")
}

// chain makes the selected plugins ready. An error about their names is one of
// usage.
func (s *selection) chain() (*handlers.Chain, error) {
	table := s.options.table()
	known := func(name string) bool {
		return slices.ContainsFunc(table, func(p handlers.Plugin) bool { return p.Name == name })
	}
	for _, name := range slices.Concat(s.enable, s.disable) {
		if !known(name) {
			return nil, fmt.Errorf("unknown admission plugin %q; fastadmit plugins lists all", name)
		}
	}
	for _, name := range s.enable {
		if slices.Contains(s.disable, name) {
			return nil, fmt.Errorf("%s is both enabled and disabled", name)
		}
	}
	if len(s.enable) == 0 {
		return nil, fmt.Errorf("no admission plugin is enabled: name some with --enable-admission-plugins; fastadmit plugins lists all")
	}
	admission, err := config.ReadAdmission(s.configFile, known)
	if err != nil {
		return nil, failed(err)
	}
	enabled := make(map[string]handlers.Enabled)
	var errs []error
	for _, name := range s.enable {
		content, err := admission.For(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("cannot enable plugin %s: %w", name, err))
		}
		enabled[name] = handlers.Enabled{Config: content}
	}
	if len(errs) > 0 {
		return nil, failed(errors.Join(errs...))
	}
	chain, err := handlers.NewChain(table, enabled, nil)
	return chain, failed(err)
}
