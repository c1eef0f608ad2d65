package oracle

import (
	"os"

	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/internal/config"
)

// kubeconfigOf reads the kubeconfig file that a plugin's configuration names with an
// absolute path, as fastadmit does when it reads the configuration; nil if it names none.
func kubeconfigOf(configuration string) ([]byte, error) {
	var names struct {
		ImagePolicy struct {
			KubeConfigFile string `json:"kubeConfigFile"`
		} `json:"imagePolicy"`
	}
	if err := yaml.Unmarshal([]byte(configuration), &names); err != nil || names.ImagePolicy.KubeConfigFile == "" {
		return nil, nil //nolint:nilerr // the plugin reports the error
	}
	return config.Flatten(names.ImagePolicy.KubeConfigFile, os.ReadFile)
}
