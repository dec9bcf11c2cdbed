-- Which process is which worker: an id lasts for one run and one subscription.
select worker, pid from suisha.workers
