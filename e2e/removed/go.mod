// A module of its own, which requires nothing, so that the commands of all releases of Kubernetes can import it.
module github.com/fastadmit/fastadmit/e2e/removed

go 1.26.0
