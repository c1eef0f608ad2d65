// Command fastadmit is a Kubernetes admission webhook server.
package main

import (
	"os"

	"github.com/fastadmit/fastadmit/cmd/fastadmit/app"
)

func main() {
	os.Exit(app.Execute(app.NewCommand()))
}
